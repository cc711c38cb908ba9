"""Platforms for tests of adapters."""
