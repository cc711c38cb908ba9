"""Judge whether a run delivered every message once and in order."""
