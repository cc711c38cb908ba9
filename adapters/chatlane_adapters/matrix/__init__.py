"""Adapter for Matrix: rooms of one account of a homeserver."""
