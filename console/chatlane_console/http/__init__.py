"""The rules for every request: limits, headers, forged requests, problems."""
