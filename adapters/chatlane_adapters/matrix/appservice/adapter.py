"""Accounts of Matrix as users of an application service, to which the homeserver sends events."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from typing_extensions import override

from chatlane_adapters.matrix.appservice.registration import Registration, load_registration
from chatlane_adapters.matrix.appservice.settings import AppserviceSettings
from chatlane_adapters.matrix.appservice.transactions import Member, TransactionServer
from chatlane_adapters.matrix.client import ActingClient, ensure_user
from chatlane_adapters.matrix.cursor import Cursor
from chatlane_adapters.matrix.decode import Decoder
from chatlane_adapters.matrix.invitations import Invitations
from chatlane_adapters.matrix.members import MemberReports
from chatlane_adapters.matrix.room_events import RoomEvents
from chatlane_adapters.matrix.rooms import RoomPlatform
from chatlane_client import AdapterClient
from chatlane_schemas import InboundEvent

_STORED_WITHIN: Final = timedelta(seconds=10)
_CURSOR: Final = "appservice"


class AppservicePlatform(RoomPlatform):
    """One of the accounts; sends as its user, and lets the first account receive for all.

    Args:
        settings: Settings of the account.
        appservice: What the accounts share.
    """

    def __init__(self, settings: AppserviceSettings, appservice: "Appservice") -> None:
        """Create the platform; nothing is connected before `receive`."""
        super().__init__(settings)
        self._settings = settings
        self._appservice = appservice

    @property
    @override
    def receives_in_every_process(self) -> bool:
        # Each process sends for the accounts whose leases it has. A single one takes transactions.
        return True

    @override
    async def _receive(self, adapter: AdapterClient) -> None:
        settings = self._settings
        registration = load_registration(settings.registration)
        token = registration.as_token
        user_id = await ensure_user(
            settings.homeserver, token, registration.localpart(settings.account)
        )
        client = ActingClient(settings.homeserver, user_id, token)
        try:
            member = await self._member(adapter, client, registration)
            self._become_ready(client)
            await self._appservice.serve(settings.account, adapter, member)
        finally:
            await self._close(client)

    async def _member(
        self, adapter: AdapterClient, client: ActingClient, registration: Registration
    ) -> Member:
        own_server = client.user_id.partition(":")[2]
        patterns = self._settings.invitations_from or (f"*:{own_server}",)

        async def publish(event: InboundEvent) -> None:
            sender = event.sender
            if sender is not None and registration.owns(sender.id or ""):
                # Accounts that share a room would answer each other.
                sender = sender.model_copy(update={"is_bot": True})
                event = event.model_copy(update={"sender": sender})
            await adapter.publish(event, give_up_after=_STORED_WITHIN)

        async def load() -> Invitations:
            kept = Cursor.load(await adapter.load_cursor(_CURSOR))
            return Invitations(client, patterns, kept.invitations)

        async def save(pending: tuple[str, ...]) -> None:
            await adapter.save_cursor(_CURSOR, Cursor(invitations=pending).dump())

        decoder = Decoder(
            new_event=adapter.event,
            user_id=client.user_id,
            display_name=await client.display_name(),
            answers_all=self._settings.room_messages == "all",
        )
        events = RoomEvents(client=client, decoder=decoder, publish=publish)
        return Member(
            client=client,
            events=events,
            load_invitations=load,
            save_invitations=save,
            reports=MemberReports(client.members, adapter.report_members),
        )


class Appservice:
    """Takes the transactions of a homeserver for all accounts of a process.

    Of several processes, the one with the lease of the first account takes them.
    """

    def __init__(self, settings: AppserviceSettings) -> None:
        """Create the application service; nothing is served before `serve`."""
        self._settings = settings
        self._members: dict[str, Member] = {}
        self._are_all_there = asyncio.Event()

    async def serve(self, account: str, adapter: AdapterClient, member: Member) -> None:
        """Take part with an account until cancelled; with the first one, take transactions."""
        names = self._settings.accounts
        self._members[account] = member
        if len(self._members) == len(names):
            self._are_all_there.set()
        if account == names[0]:
            await adapter.run_leased(self._take_transactions)
        await asyncio.Event().wait()

    async def _take_transactions(self) -> None:
        await self._are_all_there.wait()
        token = load_registration(self._settings.registration).hs_token
        server = TransactionServer(token, tuple(self._members.values()))
        await server.run(self._settings.listen_host, self._settings.listen_port)


def platforms_of(
    settings: AppserviceSettings,
) -> Sequence[tuple[AppservicePlatform, AppserviceSettings]]:
    """Return each account of an application service, with its own settings."""
    appservice = Appservice(settings)
    accounts = map(settings.of_account, settings.accounts)
    return [(AppservicePlatform(account, appservice), account) for account in accounts]
