"""Settings, the declarations of `chatlane.toml`, and the users of NATS."""
