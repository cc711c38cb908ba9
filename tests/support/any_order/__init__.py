"""Conversations under whatever happens in whatever order: a state machine and what must hold."""
