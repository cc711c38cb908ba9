"""Other agents that speak the A2A protocol, in front of sessions of chatlane."""
