"""Limits on how much people, bots and accounts may write."""
