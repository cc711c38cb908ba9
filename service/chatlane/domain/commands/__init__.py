"""Chat commands: which messages are commands, what they do, and their replies."""
