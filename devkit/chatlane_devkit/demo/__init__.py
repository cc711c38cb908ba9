"""Run the scenario on a local stack, kill its processes, and report the outcome."""
