"""From a prompt to codes: the rules of a request, batches of requests, one request alone, and the prefix cache."""
