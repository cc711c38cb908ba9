"""Build the answer of a stream worker to a routed message."""

from datetime import UTC, datetime

from chatlane_schemas.content.buttons import Button, TextFormat
from chatlane_schemas.inbound import Attachment
from chatlane_schemas.results import ResultMessage
from chatlane_schemas.routed import RoutedMessage


def answer_to(
    routed: RoutedMessage,
    text: str | None,
    *,
    part: int = 0,
    attachments: tuple[Attachment, ...] = (),
    text_format: TextFormat | None = None,
    buttons: tuple[Button, ...] | None = None,
) -> ResultMessage:
    """Return one part of the answer to a routed message.

    The envelope id follows from the message and the part. A worker that answers again after a crash
    publishes the same id, so the stream drops the duplicate.
    """
    return ResultMessage(
        id=f"{routed.id}:{part}",
        at=datetime.now(UTC),
        session_id=routed.session_id,
        reply_to=routed.id,
        part=part,
        text=text,
        attachments=attachments,
        format=text_format,
        buttons=buttons,
    )
