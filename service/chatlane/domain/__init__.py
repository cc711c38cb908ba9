"""Decisions: pure functions of state, event, policy and time. No IO, no clock, no chance."""
