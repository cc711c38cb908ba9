"""What is logged of what a server refused."""

from chatlane_client.transport.secured import without_chats
from chatlane_schemas.topology import subjects


def test_nobody_s_number_can_be_guessed_from_what_is_logged_of_a_refusal() -> None:
    subject = subjects.inbound("whatsapp", "bot", subjects.chat_token("4915112345678"))
    said = f'nats: permissions violation for publish to "{subject}"'
    shown = 'nats: permissions violation for publish to "chat.v1.inbound.whatsapp.bot.…"'
    assert without_chats(said) == shown
