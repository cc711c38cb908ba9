"""Own partitions, read their logs, and commit batches."""
