"""What the roles may do, as lists of subjects."""

from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations

import pytest

from chatlane_schemas.topology import permissions
from chatlane_schemas.topology.streams import STREAMS_OF_PEOPLE, Delivery, StreamName
from chatlane_schemas.topology.subjects import SubjectError


@dataclass(frozen=True)
class Agent:
    name: str
    delivery: Delivery = "turns"
    ack_wait: timedelta = timedelta(minutes=2)


ROLES = {
    "router": permissions.router("router"),
    "adapter": permissions.adapter("adapter", [("slack", "bot")]),
    "worker": permissions.worker("worker", Agent("main")),
    "subscriber": permissions.worker("subscriber", Agent("sales", "stream"), slots=2),
    "front_end": permissions.front_end("front_end", [("slack", "bot")]),
    "operator": permissions.operator("operator"),
    "observer": permissions.observer("observer"),
    "webhooks": permissions.webhooks("webhooks", reads_text=True),
    "provisioner": permissions.provisioner("provisioner"),
    "eraser": permissions.eraser("eraser"),
    "backup": permissions.backup("backup"),
    "restorer": permissions.restorer("restorer"),
}


@pytest.mark.parametrize(
    ("verb", "who"),
    [
        ("API.STREAM.DELETE", {"restorer"}),
        ("API.STREAM.RESTORE", {"restorer"}),
        ("SNAPSHOT.RESTORE", {"restorer"}),
        ("API.STREAM.SNAPSHOT", {"backup"}),
        ("SNAPSHOT.ACK", {"backup"}),
    ],
)
def test_streams_are_backed_up_and_replaced_by_who_is_there_for_it(
    verb: str, who: set[str]
) -> None:
    for name, role in ROLES.items():
        named = {its for its in role.publish if its.startswith(f"$JS.{verb}.")}
        assert len(named) == (len(StreamName) if name in who else 0)


def test_messages_are_deleted_by_who_erases_and_by_routers() -> None:
    """Routers delete what erasures left and comes again, and what changed before it was given out."""
    deletes = {
        (name, subject.removeprefix("$JS.API.STREAM.MSG.DELETE."))
        for name, role in ROLES.items()
        for subject in role.publish
        if ".MSG.DELETE." in subject
    }
    assert deletes == {
        *(("router", stream) for stream in ("INBOUND", "RESULTS", "ROUTED")),
        *(("eraser", stream) for stream in STREAMS_OF_PEOPLE),
    }


def test_only_routers_purge_the_logs_and_the_share_of_an_account_or_agent() -> None:
    purges = {
        (name, subject)
        for name, role in ROLES.items()
        for subject in role.publish
        if ".PURGE." in subject
    }
    assert purges == {
        ("router", "$JS.API.STREAM.PURGE.INBOUND"),
        ("router", "$JS.API.STREAM.PURGE.OUTBOUND"),
        ("router", "$JS.API.STREAM.PURGE.RESULTS"),
        ("router", "$JS.API.STREAM.PURGE.ROUTED"),
        ("router", "$JS.API.STREAM.PURGE.TURNS"),
    }


def test_nobody_may_say_everything_to_the_server() -> None:
    for role in ROLES.values():
        allowed = [*role.publish, *role.subscribe]
        assert not {">", "$JS.>", "$JS.API.>", "$JS.ACK.>", "$SYS.>", "chat.>"} & set(allowed)


def test_only_the_provisioner_makes_streams_and_durables() -> None:
    for name, role in ROLES.items():
        makes = [subject for subject in role.publish if ".CREATE." in subject]
        if name == "router":
            named = [its for its in makes if its.split(".")[4] not in {"INBOUND", "RESULTS"}]
            assert {*named} == {
                "$JS.API.CONSUMER.CREATE.ROUTED.comparing.>",
                "$JS.API.CONSUMER.CREATE.OUTBOUND.shares.>",
                "$JS.API.CONSUMER.CREATE.ROUTED.shares.>",
            }
        elif name == "provisioner":
            assert {subject.split(".")[4] for subject in makes} == {*StreamName}
        elif name == "eraser":
            # What it reads with, and ends again.
            assert {subject.split(".")[2] for subject in makes} == {"CONSUMER"}
            assert {subject.split(".")[5] for subject in makes} == {"erasing"}
        else:
            assert makes == []


def test_an_observer_asks_for_nothing_but_how_things_are() -> None:
    [request, *others] = [it for it in ROLES["observer"].publish if not it.startswith("$JS.")]
    assert (request, others) == ("chat.v1.api.observer.service.overview", [])
    allowed = [subject for subject in ROLES["observer"].publish if subject != request]
    assert {subject.split(".")[-2] for subject in allowed if ".MSG." in subject} == {"GET"}
    verbs = {".".join(subject.split(".")[2:4]) for subject in allowed if subject.count(".") > 2}
    assert verbs == {
        *("STREAM.NAMES", "STREAM.LIST", "STREAM.INFO", "STREAM.MSG"),
        *("CONSUMER.NAMES", "CONSUMER.LIST", "CONSUMER.INFO"),
    }
    assert all(subject.startswith("$JS.API.") for subject in allowed)


def test_nobody_reads_the_replies_of_another() -> None:
    for first, second in combinations(ROLES.values(), 2):
        assert first.subscribe[0] != second.subscribe[0]
    for name, role in ROLES.items():
        assert role.subscribe[0] == f"{permissions.inbox_prefix(name)}.>"


def test_the_principal_is_pinned_in_requests() -> None:
    for name, role in ROLES.items():
        requests = [subject for subject in role.publish if subject.startswith("chat.v1.api.")]
        assert {subject.split(".")[3] for subject in requests} <= {name}


def test_an_operator_asks_in_the_form_by_which_it_is_audited() -> None:
    asked = [its for its in ROLES["operator"].publish if its.startswith("chat.v1.api.")]
    assert asked
    assert {its.count(".") for its in asked} == {"chat.v1.api.operator.noun.verb".count(".")}


def test_a_name_that_would_widen_a_permission_is_refused() -> None:
    for wrong in ("*", ">", "a.b", ""):
        with pytest.raises(SubjectError):
            permissions.router(wrong)
        with pytest.raises(SubjectError):
            permissions.adapter("a", [("slack", wrong)])
        with pytest.raises(SubjectError):
            permissions.adapter("a", [(wrong, "bot")])
        with pytest.raises(SubjectError):
            permissions.worker("w", Agent(wrong))
        with pytest.raises(SubjectError):
            permissions.front_end("f", [("slack", wrong)])
        with pytest.raises(SubjectError):
            permissions.front_end(wrong, [("slack", "bot")])
