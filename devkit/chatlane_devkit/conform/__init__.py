"""Judges adapters against a running router and a scripted platform."""
