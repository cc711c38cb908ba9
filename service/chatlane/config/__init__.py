"""Settings, what `chatlane.toml` declares, and the users of NATS."""
