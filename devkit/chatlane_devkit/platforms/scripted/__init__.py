"""A made-up chat platform that does what a test tells it."""
