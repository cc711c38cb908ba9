"""Start the cluster in containers, disturb it, and replay the scenario in it."""
