"""Request/reply over core NATS: sessions and transcripts, claims and renewals."""
