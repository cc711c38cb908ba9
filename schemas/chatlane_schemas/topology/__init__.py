"""Subjects, streams and permissions on NATS, and the documents generated from them."""
