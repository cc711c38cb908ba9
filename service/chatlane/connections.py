"""What settings say of the servers: how to reach them, and which streams there are to be.

For routers and for the command line, which has no use for the parts of a router.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import SecretStr

from chatlane.config.settings import SettingsError
from chatlane.nats.connection import BusOptions
from chatlane.observability.logs import get_logger
from chatlane.postgres.pool import open_store
from chatlane_schemas.streams import declared_durables, declared_streams

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from chatlane.config.settings import NatsSettings, Settings
    from chatlane.postgres.pool import Store
    from chatlane_schemas.streams import DurableSpec, StreamSpec

_log = get_logger("surroundings")


@dataclass(frozen=True, slots=True)
class Topology:
    """The streams and durables that the settings call for."""

    streams: tuple[StreamSpec, ...]
    durables: tuple[DurableSpec, ...]


def declared_topology(settings: Settings) -> Topology:
    """Return what `admin apply` makes and every router verifies.

    Raises:
        SettingsError: No platform is declared.
    """
    catalog = settings.catalog()
    accounts = [
        (platform.name, account)
        for platform in catalog.platforms.values()
        for account in platform.accounts
    ]
    return Topology(
        declared_streams(
            settings.router.partitions,
            settings.streams.duplicate_window,
            replicas=settings.streams.replicas,
            max_bytes=settings.streams.max_bytes_by_stream(),
        ),
        declared_durables(catalog.agents.values(), accounts, settings.router.slots),
    )


def _current(settings: Settings) -> Settings:
    """Return the settings as they are to be read now, for credentials that have changed.

    Where they cannot be read at the moment, those of the start have to do.
    """
    try:
        return settings.fresh()
    except SettingsError as error:
        _log.warning("settings_not_reread", problems=error.problems)
        return settings


def _plain(value: str | SecretStr | None) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else value or ""


def bus_options(settings: Settings, name: str) -> BusOptions:
    """Return how to reach NATS; `name` is shown on its monitoring port."""
    nats = settings.nats

    def told(value: Callable[[NatsSettings], str | SecretStr | None]) -> Callable[[], str] | None:
        """Return what tells a credential anew, if there is such a credential at all."""
        if value(nats) is None:
            return None
        return lambda: _plain(value(_current(settings).nats))

    return BusOptions(
        url=nats.url,
        name=name,
        user=told(lambda its: its.user),
        password=told(lambda its: its.password),
        token=told(lambda its: its.token),
        creds_file=nats.creds_file,
        nkey_seed_file=nats.nkey_seed_file,
        tls_ca_file=nats.tls_ca_file,
        principal=nats.principal,
        connect_timeout=nats.connect_timeout,
        reconnect_wait=nats.reconnect_wait,
    )


def store_of(settings: Settings) -> AbstractAsyncContextManager[Store]:
    """Return the store, to be opened."""
    postgres = settings.postgres

    def address() -> str:
        return _current(settings).postgres.address()

    return open_store(
        address,
        max_size=postgres.pool_size,
        lock_timeout=postgres.lock_timeout,
        statement_timeout=postgres.statement_timeout,
        acquire_timeout=postgres.connect_timeout,
        statement_cache_size=postgres.statement_cache_size,
    )
