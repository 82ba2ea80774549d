"""The mutating webhook that adds the agent to pods which opt in by annotation."""
