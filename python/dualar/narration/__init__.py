"""Long texts: how they are cut, spoken piece by piece, kept in a job, and heard as one run of samples."""

from dualar.narration.result import Narration, NarrationResult

__all__ = ["Narration", "NarrationResult"]
