"""Editors for tests of the bridge for editors."""
