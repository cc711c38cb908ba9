"""Decide requests about turns: messages and questions before the answer, replies, and stops."""
