"""The suite that every family of models passes."""
