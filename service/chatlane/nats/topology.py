"""Create, update and verify the declared streams and durables.

The admin job calls `apply`, which creates and updates but never deletes. Every process calls
`verify` at its start, which changes nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from chatlane.domain.log import LogName, describe_partition_count
from chatlane.nats.jetstream import GENERATION_KEY, JetStream, nanoseconds
from chatlane_schemas.envelope import MAX_PAYLOAD_BYTES
from chatlane_schemas.topology.streams import TURN_EVENTS, DurableSpec, StreamName, StreamSpec

LOG_STREAMS: Final[Mapping[LogName, StreamName]] = {
    "inbound": StreamName.INBOUND,
    "results": StreamName.RESULTS,
}

_PARTITION_CALL: Final = re.compile(r"\{\{partition\((\d+),")
# Fields that cannot change after the creation; a difference needs an operator's decision.
_FIXED_OF_DURABLE: Final = frozenset({"ack_policy", "deliver_policy"})
_FIXED_OF_STREAM: Final = frozenset({"retention", "storage", "subject_transform"})
# Differences from the release before that routers work with: an upgrade changes the streams after
# the routers, and the way back before them.
_OPTIONAL_SUBJECTS: Final = frozenset({TURN_EVENTS})
_OPTIONAL_OF_DURABLE: Final = frozenset({"max_ack_pending"})


async def apply(
    jetstream: JetStream, streams: Iterable[StreamSpec], durables: Iterable[DurableSpec]
) -> list[str]:
    """Create missing streams and durables, and update those that differ.

    It deletes nothing, and takes no subject from a stream: a newer release may need it. It leaves
    fields that only a re-creation could change; `verify` reports them.

    Returns:
        One sentence for each change; empty if nothing changed.

    Raises:
        ApiRefusedError: The server does not accept a declaration.
        BusUnavailableError: No answer in time.
    """
    done = [await _apply_stream(jetstream, spec) for spec in streams]
    done += [await _apply_durable(jetstream, spec) for spec in durables]
    return [sentence for sentence in done if sentence]


async def verify(
    jetstream: JetStream,
    streams: Iterable[StreamSpec],
    durables: Iterable[DurableSpec],
    *,
    is_starting: bool = False,
) -> list[str]:
    """Compare the server with the declarations and with the requirements of every release.

    Args:
        jetstream: The server.
        streams: The declared streams.
        durables: The declared durables.
        is_starting: Leave out what a router works without until the end of an upgrade.

    Returns:
        One sentence for each difference; empty if there is none.

    Raises:
        BusUnavailableError: No answer in time.
    """
    found = _server_differences(jetstream)
    optional_subjects = _OPTIONAL_SUBJECTS if is_starting else frozenset[str]()
    optional = _OPTIONAL_OF_DURABLE if is_starting else frozenset[str]()
    for spec in streams:
        if is_starting and spec.is_of_adapters:
            # They are replaced after the streams.
            continue
        needed = tuple(name for name in spec.subjects if name not in optional_subjects)
        found += await _stream_differences(jetstream, replace(spec, subjects=needed))
    for durable in durables:
        found += await _durable_differences(jetstream, durable, optional)
    return found


def _server_differences(jetstream: JetStream) -> list[str]:
    if jetstream.max_payload >= MAX_PAYLOAD_BYTES:
        return []
    takes, wants = jetstream.max_payload, MAX_PAYLOAD_BYTES
    return [f"the server takes {takes} bytes in a message: set its max_payload to {wants} or more"]


def find_partition_count(config: Mapping[str, Any]) -> int | None:
    """Return the partition count in the subject transform of a stream, or None without one."""
    transform = config.get("subject_transform") or {}
    call = _PARTITION_CALL.search(transform.get("dest", ""))
    return int(call[1]) if call else None


def stream_config(spec: StreamSpec) -> dict[str, Any]:
    """Convert a declaration to the configuration format of JetStream."""
    config: dict[str, Any] = {
        "name": spec.name.value,
        "subjects": list(spec.subjects),
        "retention": spec.retention,
        "storage": spec.storage,
        "discard": spec.discard,
        "max_age": nanoseconds(spec.max_age) if spec.max_age else 0,
        "max_bytes": spec.max_bytes,
        "duplicate_window": nanoseconds(spec.duplicate_window),
        "num_replicas": spec.replicas,
    }
    if spec.is_of_adapters:
        config["max_msgs_per_subject"] = 1
    if spec.has_expiring_messages:
        config["allow_msg_ttl"] = True
    if spec.is_read_by_subject:
        config["allow_direct"] = True
    if spec.max_message_bytes is not None:
        config["max_msg_size"] = spec.max_message_bytes
    if spec.subject_transform:
        config["subject_transform"] = {
            "src": spec.subject_transform.source,
            "dest": spec.subject_transform.destination,
        }
    return config


def durable_config(spec: DurableSpec) -> dict[str, Any]:
    """Convert a declaration to the configuration format of JetStream."""
    return {
        "name": spec.name,
        "durable_name": spec.name,
        "filter_subject": spec.filter_subject,
        "ack_policy": spec.ack_policy,
        "deliver_policy": spec.deliver_policy,
        "ack_wait": nanoseconds(spec.ack_wait),
        "max_deliver": spec.max_deliver,
        "max_ack_pending": spec.max_ack_pending,
    }


async def _apply_stream(jetstream: JetStream, spec: StreamSpec) -> str | None:
    declared = stream_config(spec)
    state = await jetstream.find_stream(spec.name)
    if state is None:
        if spec.name in LOG_STREAMS.values():
            declared["metadata"] = {GENERATION_KEY: str(uuid4())}
        await jetstream.request(f"STREAM.CREATE.{spec.name}", declared)
        return f"stream {spec.name} created"
    changed = _changed(declared, state.config, _FIXED_OF_STREAM)
    needs_generation = spec.name in LOG_STREAMS.values() and GENERATION_KEY not in (
        state.config.get("metadata") or {}
    )
    if not changed and not needs_generation:
        return None
    # An update replaces the whole configuration, so send undeclared fields back unchanged.
    updated = {**state.config, **{name: declared[name] for name in changed}}
    updated["subjects"] = list(dict.fromkeys((*state.config.get("subjects", ()), *spec.subjects)))
    if needs_generation:
        updated["metadata"] = {**updated.get("metadata", {}), GENERATION_KEY: str(uuid4())}
    await jetstream.request(f"STREAM.UPDATE.{spec.name}", updated)
    return f"stream {spec.name} updated: {', '.join(changed) or 'generation'}"


async def _apply_durable(jetstream: JetStream, spec: DurableSpec) -> str | None:
    declared = durable_config(spec)
    info = await jetstream.find(f"CONSUMER.INFO.{spec.stream}.{spec.name}")
    place = f"durable {spec.name} on {spec.stream}"
    if info is None:
        await _send_durable(jetstream, spec, "create", declared)
        return f"{place} created"
    changed = _changed(declared, info["config"], _FIXED_OF_DURABLE)
    if not changed:
        return None
    updated = {**info["config"], **{name: declared[name] for name in changed}}
    await _send_durable(jetstream, spec, "update", updated)
    return f"{place} updated: {', '.join(changed)}"


async def _send_durable(
    jetstream: JetStream, spec: DurableSpec, action: str, config: Mapping[str, Any]
) -> None:
    body = {"stream_name": spec.stream.value, "action": action, "config": config}
    await jetstream.request(
        f"CONSUMER.CREATE.{spec.stream}.{spec.name}.{spec.filter_subject}", body
    )


async def _stream_differences(jetstream: JetStream, spec: StreamSpec) -> list[str]:
    state = await jetstream.find_stream(spec.name)
    if state is None:
        return [f"stream {spec.name} is missing: run `chatlane admin apply`"]
    declared = stream_config(spec)
    count, actual = find_partition_count(declared), find_partition_count(state.config)
    if count is not None and count != actual:
        return [describe_partition_count(f"stream {spec.name}", actual, count)]
    found = list(_differences(f"stream {spec.name}", declared, state.config))
    metadata = state.config.get("metadata") or {}
    if spec.name in LOG_STREAMS.values() and GENERATION_KEY not in metadata:
        found.append(f"stream {spec.name} has no generation: run `chatlane admin apply`")
    return found


async def _durable_differences(
    jetstream: JetStream, spec: DurableSpec, optional: frozenset[str]
) -> list[str]:
    place = f"durable {spec.name} on {spec.stream}"
    info = await jetstream.find(f"CONSUMER.INFO.{spec.stream}.{spec.name}")
    if info is None:
        return [f"{place} is missing: run `chatlane admin apply`"]
    return list(_differences(place, durable_config(spec), info["config"], optional))


def _differences(
    place: str,
    declared: Mapping[str, Any],
    actual: Mapping[str, Any],
    ignored: frozenset[str] = frozenset(),
) -> Iterator[str]:
    for name in _changed(declared, actual, ignored):
        yield f"{place}: {name} is {actual.get(name)!r}, declared is {declared[name]!r}"


def _changed(
    declared: Mapping[str, Any], actual: Mapping[str, Any], ignored: frozenset[str]
) -> Sequence[str]:
    """Return the names of the fields that differ, without the ignored ones."""
    return [
        name
        for name, value in declared.items()
        if name not in ignored and not _is_met(name, value, actual.get(name))
    ]


def _is_met(name: str, declared: object, actual: object) -> bool:
    if name == "subjects" and isinstance(declared, list) and isinstance(actual, list):
        # A newer release may have added more.
        return set(declared) <= set(actual)
    # The server omits zero values.
    if not declared and not actual:
        return True
    return declared == actual
