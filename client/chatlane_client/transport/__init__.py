"""Connections, pulls, publishes and requests on top of nats-py."""
