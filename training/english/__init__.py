"""The trainer of a voice for any English sentence: README.md tells how. The architecture is `training/`'s."""
