"""SQL of the service: one module per family of tables, each statement above its function."""
