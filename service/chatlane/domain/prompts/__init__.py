"""Describe the place, people and destinations of a conversation to a prompt."""
