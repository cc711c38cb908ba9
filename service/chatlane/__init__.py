"""The routing service: JetStream is the log, Postgres decides."""
