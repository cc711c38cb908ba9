"""The only SQL: one module per family of tables, each statement above the function that runs it."""
