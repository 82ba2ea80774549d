"""The aggregator: folds the reports of all pods into the status of each LoRAAdapter."""
