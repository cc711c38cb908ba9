"""Tables of aliases, identities, lanes, and dedupe marks."""
