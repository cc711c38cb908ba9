"""Run nats-server, Postgres and other programs as child processes."""
