"""Routes of the endpoint, and what they have in common."""
