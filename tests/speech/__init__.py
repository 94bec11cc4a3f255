"""Requests for speech and streams of it."""
