"""The HTTP API of conversations, and the pages that people and operators use it with."""
