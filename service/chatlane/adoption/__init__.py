"""Adopts the conversations of a Hermes gateway: reads its files, never changes them."""
