"""Discord: events from the gateway, messages over the REST API."""
