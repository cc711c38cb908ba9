"""Build connections and topology from the settings: servers, credentials, declared streams.

Routers and the command line share this module; the command line needs no other part of a router.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import SecretStr

from chatlane.config.settings import SettingsError
from chatlane.nats.connection import BusOptions
from chatlane.observability.logs import get_logger
from chatlane.postgres.pool import open_store
from chatlane_schemas.topology.streams import declared_durables, declared_streams

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from chatlane.config.setting_groups import NatsSettings
    from chatlane.config.settings import Settings
    from chatlane.postgres.pool import Store
    from chatlane_schemas.topology.streams import DurableSpec, StreamSpec

_log = get_logger("surroundings")


@dataclass(frozen=True, slots=True)
class Topology:
    """The streams and durables that the settings call for."""

    streams: tuple[StreamSpec, ...]
    durables: tuple[DurableSpec, ...]


def declared_topology(settings: Settings) -> Topology:
    """Return the topology that `admin apply` creates and every router verifies.

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
    """Read the settings again, because credentials may have changed.

    If they cannot be read now, return those of the start.
    """
    try:
        return settings.fresh()
    except SettingsError as error:
        _log.warning("settings_not_reread", problems=error.problems)
        return settings


def _plain(value: str | SecretStr | None) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else value or ""


def bus_options(settings: Settings, name: str) -> BusOptions:
    """Return the NATS connection options; `name` appears on the monitoring port of NATS."""
    nats = settings.nats

    def reader_of(
        value: Callable[[NatsSettings], str | SecretStr | None],
    ) -> Callable[[], str] | None:
        """Return a function that rereads a credential, or None if the credential is not set."""
        if value(nats) is None:
            return None
        return lambda: _plain(value(_current(settings).nats))

    return BusOptions(
        url=nats.url,
        name=name,
        user=reader_of(lambda nats_settings: nats_settings.user),
        password=reader_of(lambda nats_settings: nats_settings.password),
        token=reader_of(lambda nats_settings: nats_settings.token),
        creds_file=nats.creds_file,
        nkey_seed_file=nats.nkey_seed_file,
        tls_ca_file=nats.tls_ca_file,
        principal=nats.principal,
        connect_timeout=nats.connect_timeout,
        reconnect_wait=nats.reconnect_wait,
    )


def store_of(settings: Settings) -> AbstractAsyncContextManager[Store]:
    """Return the store, not yet open."""
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
