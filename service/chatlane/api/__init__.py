"""Request/reply over core NATS: the read-only session API, claims and renewals."""
