"""A Slack for tests: workspaces with a Web API, signed events, sockets, and faults on demand."""
