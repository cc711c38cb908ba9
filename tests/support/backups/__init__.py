"""Backups and restores as docs/operations.md describes them."""
