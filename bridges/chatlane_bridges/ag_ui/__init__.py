"""Front ends that speak AG-UI, in front of sessions of chatlane."""
