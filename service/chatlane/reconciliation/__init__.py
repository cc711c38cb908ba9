"""Compare database and streams, repair what is safe to repair, and report the rest."""
