"""The only code that speaks NATS: connection, topology, log reader, publisher."""
