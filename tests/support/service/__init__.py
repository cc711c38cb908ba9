"""The whole service in processes of its own, and the users who talk to it."""
