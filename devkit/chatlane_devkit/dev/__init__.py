"""`chatlane dev`: servers, routers and a console that keep running, to chat with."""
