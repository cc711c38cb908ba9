"""The events that the demo publishes, and the generator that writes them."""
