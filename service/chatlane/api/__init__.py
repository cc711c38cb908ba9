"""Request/reply over core NATS: sessions, transcripts, claims and renewals."""
