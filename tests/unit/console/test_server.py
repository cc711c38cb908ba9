"""The socket of the console's HTTP server."""

import socket

from chatlane_console.server import listening
from chatlane_console.settings import ConsoleSettings


def test_a_response_waits_for_no_acknowledgement() -> None:
    """A body that follows its headers is sent at once, as on a connection that asyncio opens itself."""
    with (
        listening(ConsoleSettings(port=0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
