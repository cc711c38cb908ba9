"""What a prompt shows instead of ids and phone numbers."""

import hashlib
import hmac

import pytest

from chatlane.domain.prompts.sanitize import Redaction, without_numbers

KEY = b"0123456789abcdef"


@pytest.fixture
def redaction() -> Redaction:
    return Redaction(KEY, {"telegram", "sms"})


def test_a_person_is_a_keyed_digest(redaction: Redaction) -> None:
    shown = redaction.person("telegram", "111")

    assert shown == "user_" + hmac.new(KEY, b"telegram\x00111", hashlib.sha256).hexdigest()[:12]
    assert hashlib.sha256(b"111").hexdigest()[:12] not in shown


def test_a_digest_depends_on_key_platform_and_id(redaction: Redaction) -> None:
    shown = {
        redaction.chat("telegram", "111"),
        redaction.chat("telegram", "112"),
        redaction.chat("sms", "111"),
        Redaction(b"fedcba9876543210", {"telegram"}).chat("telegram", "111"),
    }

    assert len(shown) == 4
    assert redaction.chat("telegram", "111") == redaction.chat("telegram", "111")


@pytest.mark.parametrize(
    ("chat", "prefix", "rest"),
    [
        ("12345", "", "12345"),
        ("-100555", "", "-100555"),
        ("telegram:12345", "telegram:", "12345"),
        (":12", "", ":12"),
        ("60123456789:47@s.whatsapp.net", "", "60123456789:47@s.whatsapp.net"),
        ("unknown:12", "", "unknown:12"),
    ],
)
def test_only_a_platforms_name_stays_before_the_colon(
    redaction: Redaction, chat: str, prefix: str, rest: str
) -> None:
    digest = hmac.new(KEY, b"telegram\0" + rest.encode(), hashlib.sha256).hexdigest()[:12]

    assert redaction.chat("telegram", chat) == prefix + digest


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Pat", "Pat"),
        ("+60 12-345 6789", None),
        ("60123456789", None),
        ("(030) 123 45 67", None),
        ("٦٠١٢٣٤٥٦٧", None),
        ("\uff16\uff10\uff11\uff12\uff13\uff14\uff15", None),
        ("~Pat +60 12 345 6789", "~Pat (number)"),
        ("Route 66, since 1926", "Route 66, since 1926"),
        ("pat-7f3a", None),
        ("call pat-7f3a now", "call (id) now"),
        ("7", None),
        ("Agent 7", "Agent 7"),
    ],
)
def test_a_name_tells_neither_ids_nor_numbers(name: str, shown: str | None) -> None:
    assert without_numbers(name, {"pat-7f3a", "7"}) == shown
