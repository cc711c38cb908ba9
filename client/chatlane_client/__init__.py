"""What an adapter or an agent worker needs to talk to chatlane."""
