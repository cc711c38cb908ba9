"""A mailbox as a platform of chatlane."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import ClassVar, Final

import aiosmtplib
from aiosmtpd.lmtp import LMTP
from aiosmtpd.smtp import SMTP, Envelope, Session
from pydantic import ValidationError
from typing_extensions import override

from chatlane_adapters.kit.capabilities import Capabilities
from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.mail.decode import MailFile, event_of, files_of, with_file_names
from chatlane_adapters.mail.render import mail_of, message_id_of
from chatlane_adapters.mail.settings import MailSettings
from chatlane_client import (
    AdapterClient,
    ChatGone,
    ConnectionClosedError,
    OversizedMessageError,
    Piece,
    RefusedPublishError,
    RetryAfter,
    TextLimit,
    UndeclaredAccountError,
    Undeliverable,
)
from chatlane_client.media.store import MediaRefusedError, MediaStore, folder_of
from chatlane_schemas import Attachment, InboundEvent
from chatlane_schemas.inbound import MAX_ATTACHMENTS

_log: Final = logging.getLogger(__name__)

_STORED_WITHIN: Final = timedelta(seconds=20)
_CALL_TIME: Final = 60.0
_PAUSE: Final = 60.0
_PERMANENT: Final = 500
_NO_SENDER: Final = {None, "", "<>"}
_STORED: Final = "250 2.0.0 stored"
_LATER: Final = "451 4.3.0 try again later"
_REFUSED: Final = "554 5.6.0 not understood"
CAPABILITIES: Final = Capabilities(
    platform="mail",
    text_limit=TextLimit(1_000_000),
    has_typing=False,
    has_drafts=False,
    has_buttons=False,
    has_edits=False,
)


class MailPlatform(Platform):
    """One mailbox; its mail comes to each process."""

    capabilities: ClassVar[Capabilities] = CAPABILITIES

    def __init__(self, settings: MailSettings) -> None:
        self._settings = settings

    @property
    @override
    def receives_in_every_process(self) -> bool:
        return True

    @override
    async def receive(self, adapter: AdapterClient) -> None:
        loop = asyncio.get_running_loop()
        settings = self._settings

        intake = _Intake(adapter, loop.create_future(), self.media)

        def serve() -> LMTP:
            size = settings.max_bytes
            return LMTP(intake, data_size_limit=size, enable_SMTPUTF8=True, loop=loop)

        server = await loop.create_server(serve, settings.lmtp_host, settings.lmtp_port)
        _log.info("mail_served", extra={"port": server.sockets[0].getsockname()[1]})
        async with server:
            await intake.failure

    @override
    async def deliver(self, piece: Piece) -> str | None:
        settings = self._settings
        mail = mail_of(piece, address=settings.address, name=settings.name)
        password = settings.smtp_password
        try:
            await aiosmtplib.send(
                mail,
                hostname=settings.smtp_host,
                port=settings.smtp_port,
                username=settings.smtp_user,
                password=None if password is None else password.get_secret_value(),
                use_tls=settings.smtp_security == "tls",
                start_tls=settings.smtp_security == "starttls",
                timeout=_CALL_TIME,
            )
        except (aiosmtplib.SMTPAuthenticationError, aiosmtplib.SMTPSenderRefused):
            self.note_account(is_refused=True)
            raise RetryAfter(_PAUSE, whole_account=True) from None
        except aiosmtplib.SMTPRecipientsRefused as error:
            code = max(it.code for it in error.recipients)
            raise self._refusal(code, of_person=True) from None
        except aiosmtplib.SMTPResponseException as error:
            raise self._refusal(error.code, of_person=False) from None
        self.note_account(is_refused=False)
        return message_id_of(piece, settings.address)

    def _refusal(self, code: int, *, of_person: bool) -> Exception:
        """Return a refusal of the server; its text may quote what was sent."""
        if code < _PERMANENT:
            return RetryAfter(self._settings.retry_seconds)
        reason = f"the server refuses it: {code}"
        return ChatGone(reason) if of_person else Undeliverable(reason)


class _Intake:
    """Stores each mail before the server gets its confirmation."""

    def __init__(
        self,
        adapter: AdapterClient,
        failure: asyncio.Future[None],
        media: MediaStore | None,
    ) -> None:
        self._adapter = adapter
        self._media = media
        self.failure = failure

    async def handle_DATA(  # noqa: N802 - aiosmtpd calls it
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        """Return the answer to a mail."""
        content = envelope.content
        raw = content if isinstance(content, bytes) else str(content or "").encode()
        try:
            # A mail without a sender is a bounce, and answers to it could circle.
            is_bounce = envelope.mail_from in _NO_SENDER
            event = None if is_bounce else event_of(self._adapter.event, raw)
        except (LookupError, TypeError, ValidationError, ValueError) as error:
            _log.error("mail_not_understood", extra={"error": type(error).__name__})
            return _REFUSED
        if event is None:
            _log.info("mail_dropped")
            return _STORED
        try:
            event = await self._with_files(event, files_of(raw))
        except Exception as error:  # noqa: BLE001 - any error of a store: the mail comes again
            _log.warning("file_not_stored", extra={"error": type(error).__name__})
            return _LATER
        return await self._store(event)

    async def _with_files(self, event: InboundEvent, files: Sequence[MailFile]) -> InboundEvent:
        """Return a mail with references to its files; one that is not kept is named."""
        if (media := self._media) is None:
            return with_file_names(event, files)
        kept: list[Attachment] = []
        missing = list(files[MAX_ATTACHMENTS:])
        for file in files[:MAX_ATTACHMENTS]:
            try:
                reference = await media.keep(
                    folder_of(event),
                    _chunks(file.content),
                    media_type=file.media_type,
                    name=file.name,
                    kind="file",
                )
            except MediaRefusedError:
                missing.append(file)
            else:
                kept.append(reference)
        return with_file_names(event.model_copy(update={"attachments": tuple(kept)}), missing)

    async def _store(self, event: InboundEvent) -> str:
        answer = _LATER
        try:
            await self._adapter.publish(event, give_up_after=_STORED_WITHIN)
            answer = _STORED
        except (OversizedMessageError, RefusedPublishError):
            answer = _REFUSED
        except (ConnectionClosedError, UndeclaredAccountError) as error:
            if not self.failure.done():
                self.failure.set_exception(error)
        except Exception as error:  # noqa: BLE001 - the server sends it again
            _log.warning("event_not_stored", extra={"error": type(error).__name__})
        return answer


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content
