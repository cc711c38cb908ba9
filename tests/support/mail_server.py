"""An MCP server on stdin and stdout that sends mail into a file; run as a program."""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server: MCPServer[None] = MCPServer("mail", log_level="WARNING")


@server.tool()
def send_mail(to: str) -> str:
    """Send a mail."""
    outbox = Path(sys.argv[1])
    with outbox.open("a", encoding="utf-8") as file:
        file.write(f"{to}\n")
    count = len(outbox.read_text("utf-8").splitlines())
    if count == 1:
        raise RuntimeError("the first mail is lost")
    return f"sent, number {count}"


if __name__ == "__main__":
    server.run()
