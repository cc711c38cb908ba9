"""Tables of transcripts, their changes and edits."""
