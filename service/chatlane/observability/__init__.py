"""Metrics, logs, traces, and health over HTTP."""
