"""Decide one batch: decode its messages, apply the rules of `domain`, write the outcome."""
