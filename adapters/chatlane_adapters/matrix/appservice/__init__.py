"""Accounts of Matrix that are users of an application service."""
