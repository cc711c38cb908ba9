"""Index transcripts and search in them."""
