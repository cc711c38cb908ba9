"""Routes what the two logs bring: ownership, batches, claims, relay and sweeps."""
