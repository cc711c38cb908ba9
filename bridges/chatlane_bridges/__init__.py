"""Other protocols in front of chatlane: editors by ACP, and agents and front ends of others."""
