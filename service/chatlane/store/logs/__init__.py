"""Tables of partitions, routers, and positions in the logs."""
