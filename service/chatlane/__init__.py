"""The routing service, on NATS JetStream and Postgres.

A router commits its decisions and its read position in one Postgres transaction.
"""
