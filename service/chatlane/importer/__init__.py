"""Import conversations of a Hermes gateway: read its files, never change them."""
