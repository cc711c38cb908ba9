"""`chatlane sessions`: find, show and change conversations over the session API."""
