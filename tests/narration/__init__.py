"""Long texts: cutting, pieces, jobs, subtitles."""
