"""A state machine of conversations in any order of events, and the laws that must hold."""
