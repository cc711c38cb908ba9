"""Requests and replies of the session and transcript API."""
