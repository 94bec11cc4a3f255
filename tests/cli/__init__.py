"""The command `dualar`."""
