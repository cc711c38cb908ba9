"""The marks that people keep of their sessions: folders, drafts, read marks."""
