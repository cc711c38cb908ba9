"""NATS and Postgres servers of the tests, their databases, users and links."""
