"""Rules of sessions: resets, handoff, compaction, flags, and visible transcripts."""
