"""The table of channels agrees with subjects and streams."""

from chatlane_schemas import Envelope
from chatlane_schemas.session_api.deliveries import DeliveryFind
from chatlane_schemas.session_api.outbox import OutboxSend
from chatlane_schemas.session_api.people import OperatorRequest
from chatlane_schemas.session_api.sessions import ApiReply
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.channels import CHANNELS, REQUESTS, every_channel, messages
from chatlane_schemas.topology.streams import declared_streams


def test_names_and_addresses_are_unique() -> None:
    every = every_channel()
    assert len({channel.name for channel in every}) == len(every)
    assert len({channel.address for channel in every}) == len(every)


def test_whatever_is_asked_of_a_session_can_be_asked_for_a_person() -> None:
    """Else a caller that acts for people could not do it, or a handler would not look whose."""
    for channel in REQUESTS:
        fields = channel.message.model_fields
        if channel.message in {DeliveryFind, OutboxSend}:
            # An adapter asks about its own account, and an agent speaks for itself.
            continue
        if issubclass(channel.message, OperatorRequest):
            # Operators act for no person.
            continue
        assert "session_id" not in fields or "acting_for" in fields, channel.name


def test_a_stored_channel_is_within_its_stream() -> None:
    patterns = {spec.name: spec.subjects for spec in declared_streams()}
    for channel in CHANNELS:
        if channel.stream is not None:
            address = subjects.wildcards(channel.address)
            within = [subjects.common_pattern(its, address) for its in patterns[channel.stream]]
            assert address in within


def test_only_requests_are_answered() -> None:
    for channel in CHANNELS:
        assert bool(channel.replies) == channel.address.startswith("chat.v1.api.")


def leaves(model: type[Envelope]) -> set[type[Envelope]]:
    below = {leaf for child in model.__subclasses__() for leaf in leaves(child)}
    return below or {model}


def test_every_message_of_the_package_travels_on_a_channel() -> None:
    ours = {model for model in leaves(Envelope) if model.__module__.startswith("chatlane_schemas")}
    # A refusal is what other replies are made of, and an answer to workers of its own.
    assert ours | {ApiReply} == set(messages())
