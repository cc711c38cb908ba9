"""NATS: connections, topology, the log reader, and patches of nats-py."""
