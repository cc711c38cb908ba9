"""The real gateway whose conversations can be imported, in an environment of its own."""
