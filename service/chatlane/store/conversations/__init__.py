"""Tables of sessions, their lists, lineage and removal."""
