"""Answer requests of operators and observers about the service itself."""
