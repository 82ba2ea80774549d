"""What goes wrong with the rig, as opposed to with the code under test."""


class RigError(RuntimeError):
    """A real part could not be made, started or asked; the message says what a person can do."""
