"""Publish committed outbox rows in order, and redrive dead letters."""
