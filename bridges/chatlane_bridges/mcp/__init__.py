"""Agents of operators that speak the Model Context Protocol, in front of the service."""
