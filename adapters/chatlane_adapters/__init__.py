"""Adapters of chatlane for chat platforms."""
