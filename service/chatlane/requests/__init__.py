"""Apply API requests that change sessions and transcripts."""
