"""`dualar serve`: its API, its page, and callers that behave badly."""
