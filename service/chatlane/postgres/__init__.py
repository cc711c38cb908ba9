"""Postgres: the connection pool, migrations, grants, and conversion of stored values."""
