"""The events of a session while a person looks at it."""
