"""Platforms as an adapter that is judged finds them."""
