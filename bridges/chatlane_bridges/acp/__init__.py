"""Editors that speak the Agent Client Protocol, in front of sessions of chatlane."""
