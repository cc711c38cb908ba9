"""Claims and leases of workers, timed resets, and session updates."""
