"""Typed callers of the session and transcript API."""
