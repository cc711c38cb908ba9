"""A whole bot in one command: servers, router, adapter and a language model."""
