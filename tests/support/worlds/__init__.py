"""Parts of a router on real or in-memory stores, at times that the test chooses."""
