"""Published checkpoints to model files, and one model file to another."""
