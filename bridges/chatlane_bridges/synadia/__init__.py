"""Agents on NATS and their callers, over the Synadia Agent Protocol, in both directions."""
