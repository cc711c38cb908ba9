"""Front ends that speak the API of OpenAI, in front of sessions of chatlane."""
