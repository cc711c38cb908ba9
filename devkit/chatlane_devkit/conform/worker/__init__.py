"""Judge workers in any language: a router, people, and processes of the worker that are killed."""
