"""Dialogues: people who get questions, drafts, long answers and messages outside turns."""
