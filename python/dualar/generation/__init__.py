"""From a prompt to codes: the rules of one request, rows of a batch, one row alone, and kept prefixes."""
