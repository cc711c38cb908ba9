"""One account of Matrix as a platform of chatlane."""

import asyncio
import logging
from typing import Final

from typing_extensions import override

from chatlane_adapters.matrix.client import MatrixClient
from chatlane_adapters.matrix.decode import Decoder
from chatlane_adapters.matrix.login import find_device
from chatlane_adapters.matrix.members import MemberReports
from chatlane_adapters.matrix.receiver import Receiver
from chatlane_adapters.matrix.rooms import RoomPlatform
from chatlane_adapters.matrix.settings import MatrixSettings
from chatlane_client import AdapterClient, TransientError
from chatlane_schemas import InboundEvent

_log: Final = logging.getLogger(__name__)

_CURSOR: Final = "sync"


class MatrixPlatform(RoomPlatform):
    """One device of one account on its homeserver.

    The keys of encrypted rooms belong to the device, and two processes that read them would spoil
    each other's. So the device is opened by the process that holds the lease of the account.
    """

    def __init__(self, settings: MatrixSettings) -> None:
        """Create the platform; nothing is connected before `receive`."""
        super().__init__(settings)
        self._settings = settings

    @override
    async def _receive(self, adapter: AdapterClient) -> None:
        settings = self._settings
        device = await find_device(settings)
        key = settings.store_key
        client = MatrixClient(
            settings.homeserver,
            device,
            settings.directory,
            None if key is None else key.get_secret_value(),
        )
        try:
            own_server = device.user_id.partition(":")[2]
            decoder = Decoder(
                new_event=adapter.event,
                user_id=device.user_id,
                display_name=await client.display_name(),
                answers_all=settings.room_messages == "all",
            )

            async def publish(event: InboundEvent) -> None:
                await adapter.publish(event, waits_for_room=True)

            async def save(cursor: str) -> None:
                try:
                    await adapter.save_cursor(_CURSOR, cursor)
                except TransientError as error:
                    # The events are stored; the next process would only get some of them again.
                    _log.warning("cursor_not_saved", extra={"error": type(error).__name__})

            reports = MemberReports(client.members, adapter.report_members, client.is_direct)
            receiver = Receiver(
                client=client,
                decoder=decoder,
                publish=publish,
                save=save,
                invitations_from=settings.invitations_from or (f"*:{own_server}",),
                on_ready=lambda: self._become_ready(client),
                reports=reports,
            )
            kept = await adapter.load_cursor(_CURSOR)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(reports.run())
                await receiver.run(kept)
        finally:
            await self._close(client)
