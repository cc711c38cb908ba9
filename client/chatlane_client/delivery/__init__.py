"""Read outbound messages in order, send them piece by piece and report deliveries."""
