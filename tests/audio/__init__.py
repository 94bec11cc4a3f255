"""Sound as a user has it: clips, files, loudness."""
