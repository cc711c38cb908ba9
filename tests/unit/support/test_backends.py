import pytest

from tests.support.servers import containers
from tests.support.servers.backends import Backend, Backends, chosen_backends
from tests.support.servers.databases import with_database

NATS_URL = {"CHATLANE_TEST_NATS_URL": "nats://127.0.0.1:4222"}
POSTGRES_URL = {"CHATLANE_TEST_POSTGRES_URL": "postgres://127.0.0.1/postgres"}


@pytest.mark.parametrize(
    ("engine", "expected"), [(True, Backend.CONTAINERS), (False, Backend.EMBEDDED)]
)
def test_auto_takes_containers_where_an_engine_answers(
    monkeypatch: pytest.MonkeyPatch, *, engine: bool, expected: Backend
) -> None:
    monkeypatch.setattr(containers, "docker_answers", lambda: engine)
    assert chosen_backends({}) == Backends(nats=expected, postgres=expected)


def test_a_url_wins_over_the_wanted_backend() -> None:
    environment = {"CHATLANE_TEST_BACKEND": "containers", **NATS_URL}
    expected = Backends(nats=Backend.URL, postgres=Backend.CONTAINERS)
    assert expected == chosen_backends(environment)


def test_with_both_urls_no_engine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "docker_answers", lambda: pytest.fail("asked"))
    assert chosen_backends(NATS_URL | POSTGRES_URL).own_server is Backend.EMBEDDED


def test_an_unknown_backend_is_an_error() -> None:
    with pytest.raises(ValueError, match="'magic' is not a valid Backend"):
        chosen_backends({"CHATLANE_TEST_BACKEND": "magic"})


def test_another_database_keeps_the_rest_of_the_url() -> None:
    dsn = "postgres://me:secret@host:5432/postgres?sslmode=disable"
    assert with_database(dsn, "x") == "postgres://me:secret@host:5432/x?sslmode=disable"
