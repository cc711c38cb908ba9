"""The composition root: open all parts of a router in order, and close them again."""
