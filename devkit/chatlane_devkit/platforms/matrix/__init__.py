"""A real homeserver of Matrix, and people who use it."""
