"""Import conversations from files that other programs write or export."""
