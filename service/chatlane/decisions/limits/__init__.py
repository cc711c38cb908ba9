"""Limits of accounts, people and bots, read and written for a batch."""
