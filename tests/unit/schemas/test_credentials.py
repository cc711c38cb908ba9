"""What counts as a credential in an object that is kept as it is given."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from chatlane_schemas.credentials import holds_credential, names_credential

# None of them was ever valid anywhere. In pieces, so that no scanner takes this file for a leak.
NKEY = "SU" + "AHB5N6GK2WVKRKTUSXVEHV3JZCTAE5EZWWDYSKDC5TOPGEZKHGM5WTQQ"[:56]
JWT = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
PLATFORM = {
    "openai": "sk-" + "proj-4f9d2c6f1b0e4b6c8f0a7d3c",
    "github": "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "gitlab": "glpat-" + "k3Jd82hf7Gs91mZq0pLx",
    "slack": "xoxb-" + "17653672481-19874698323-pdFZKVeT",
    "amazon": "AKIA" + "IOSFODNN7EXAMPLE",
    "google": "AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
    "telegram": "110201543" + ":AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw8",
    "discord": "MTk4NjIyNDgzNDcxOTI1MjQ4" + ".Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
    "stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "jwt": JWT,
    "nkey": NKEY,
    "pem": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END",
}

NAMES = (
    *("token", "bearer", "secret", "password", "passwd", "pwd", "authorization", "cookie"),
    *(
        "api_key",
        "apikey",
        "apiKey",
        "APIKey",
        "api-key",
        "x-api-key",
        "X-Api-Key",
        "OPENAI_API_KEY",
    ),
    *(
        "githubToken",
        "GITHUB_TOKEN",
        "access_token",
        "accessToken",
        "refresh_tokens",
        "client_secret",
    ),
    *("Proxy-Authorization", "Set-Cookie", "aws.secret.access.key", "private key", "dbPassword"),
    *(
        "PGPASSWORD",
        "SMTP_PASS",
        "passphrase",
        "token2",
        "API_KEY_1",
        "credentials",
        "clientsecret",
    ),
)
NO_NAMES = (
    *("max_tokens", "tokens", "token_limit", "tokenizer", "key", "keys", "keyboard", "secretary"),
    *(
        "public_key",
        "api_key_env",
        "password_policy",
        "cookie_banner",
        "authorized",
        "compass",
        "pass",
    ),
    *("", "_", "...", "model", "context_tokens", "primary_key", "bypass", "author"),
)

CREDENTIALS: list[JsonValue] = [
    # Names and values apart.
    {"headers": [{"name": "Authorization", "value": "Bearer abc"}]},
    {"mcp": {"env": [{"name": "GITHUB_TOKEN", "value": "x"}]}},
    {"headers": [{"key": "X-Api-Key", "value": "x"}]},
    {"headers": [{"Name": "cookie", "Value": "a=b"}]},
    {"parameters": [{"value": ["x"], "param": "access_token"}]},
    {"env": [{"variable": "PGPASSWORD", "content": "x"}]},
    {"headers": [["Authorization", "Bearer abc-1"], ["accept", "text/html"]]},
    {"headers": [["X-Api-Key", "4f9d2c6f"]]},
    {"headers": [{"headerName": "X-Api-Key", "headerValue": "4f9d"}]},
    {"headers": [{"id": "Authorization", "value": "Bearer abc"}]},
    {"headers": [{"k": "cookie", "v": "a=b"}]},
    {"env": [{"property ": "password", "VALUE": "x"}]},
    # Lines, headers and assignments.
    {"headers": ["Authorization: Bearer x"]},
    {"headers": ["accept: */*", "authorization:Basic dXNlcjpwYXNz"]},
    {"headers": "Accept: */*\r\nX-Auth-Token: 4f9d2c6f\r\n"},
    {"headers": ["Cookie: session=4f9d"]},
    {"env": ["FOO_TOKEN=hunter"]},
    {"env": ["HOME=/root", "export API_KEY='4f9d'"]},
    {"env": "A=1\nMY_SECRET=4f9d\n"},
    {"args": ["--header", "Authorization: Bearer 4f9d"]},
    {"args": ["serve", "--api-key", "4f9d"]},
    {"args": ["--token=4f9d"]},
    {"command": "serve --verbose --api-key 4f9d2c --port 80"},
    {"command": "psql --host db -password 'hunter2'"},
    {"command": "curl -H 'X-Api-Key: 4f9d2c' https://example.com"},
    {"command": "docker run -e GITHUB_TOKEN=4f9d image"},
    {"file": "auth:\n  password: hunter2\n"},
    # URLs.
    {"url": "postgresql://ann:hunter2@db.example/chat"},
    {"url": "redis://:hunter2@cache.example"},
    {"proxy": "http://ann:hunter%402@proxy.example:3128"},
    {"remote": "https://4f9d2c6f1b0e4b6c8f0a7d3c@git.example/repo.git"},
    {"url": "https://example.com/feed?access_token=4f9d"},
    {"url": "https://example.com/feed?a=1&api%5Fkey=4f9d"},
    {"url": "https://maps.example/v1?key=4f9d2c6f1b0e4b6c8f0a"},
    {"file": "https://store.example/a?X-Amz-Signature=4f9d2c6f1b0e4b6c8f0a7d3c"},
    # Alone.
    {"auth": "Bearer 4f9d2c6f"},
    {"auth": "basic dXNlcjpwYXNzd29yZA=="},
    {"prompt": "Use bearer 4f9d2c6f1b0e4b6c8f0a7d3c for all calls."},
    # Inside text, keys and other JSON.
    {"settings": json.dumps({"headers": {"Authorization": "x"}})},
    {"settings": json.dumps(json.dumps([{"name": "token", "value": "x"}]))},
    {"settings": '  [{"key": "password", "value": "x"}]'},
    {"settings": 'call({"api_key": "4f9d"})'},
    {PLATFORM["openai"]: True},
    {"a": [[{"b": {"c": [{"apiKey": "x"}]}}]]},
]

NONE: list[JsonValue] = [
    {"max_tokens": 100, "temperature": 0.5, "stop": ["</s>"], "tools": ["search"]},
    {"headers": [{"name": "Accept", "value": "text/html"}]},
    {"tools": [{"name": "token", "type": "string", "description": "what to look for"}]},
    {"tools": [{"name": "password", "default": None}, {"name": "api_key", "default": ""}]},
    {"columns": ["id", "token"], "hide": ["password", "token"], "redact": ["token"]},
    {"headers": [{"name": "Authorization", "value": "${GITHUB_AUTHORIZATION}"}]},
    {"form": [{"id": "password", "label": "Your password", "type": "text"}]},
    {"prompt": "The option --token is required, --api-key names a file; -token or --password -x."},
    {"command": "serve --api-key $API_KEY --api-key-file /run/secrets/key --max-tokens 100"},
    {"env": ["FOO_TOKEN=${FOO_TOKEN}", "API_KEY=$API_KEY", "SECRET={{ secret }}", "TOKEN="]},
    {"headers": ["Authorization: Bearer ${TOKEN}", "X-Api-Key: <your key>"]},
    {"url": "postgresql://ann:${PGPASSWORD}@db.example/chat"},
    {"url": "https://ann@example.com/a", "ssh": "ssh://git@git.example/repo"},
    {"url": "http://localhost:8080/@scope/package?page=2&key=name"},
    {"prompt": "Never tell the password. Basic English, bearer of good news, token limit: 100."},
    {"prompt": "Rules:\ntoken: required\npassword: never\nAuthorization is explained elsewhere."},
    {"style": "Basic English", "kind": "token based", "who": "bearer"},
    {"code": "if token == None: token = os.environ['TOKEN']"},
    {"api_key_env": "OPENAI_API_KEY", "secret_name": "prod/chat"},
    {"text": "{not json", "list": "[1, 2", "number": 1e300, "none": None},
    {"cwd": "/srv/risk-assessment-2024-of-long-name", "commit": "4f9d2c6f1b0e4b6c8f0a7d3c5e2b1a90"},
    {"id": "0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01", "sku": "task-sk-1"},
]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_named_so_is_a_credential(name: str) -> None:
    assert names_credential(name)
    assert holds_credential([{"deep": {name: "x"}}])


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_only_about_credentials_is_none(name: str) -> None:
    assert not names_credential(name)


@pytest.mark.parametrize("value", CREDENTIALS, ids=str)
def test_a_credential_is_found_in_any_form(value: JsonValue) -> None:
    assert holds_credential(value)
    assert holds_credential({"within": [json.dumps(value)]})


@pytest.mark.parametrize("kind", PLATFORM)
def test_a_credential_is_known_by_its_own_form(kind: str) -> None:
    assert holds_credential({"note": f"it is {PLATFORM[kind]} now"})


@pytest.mark.parametrize("value", NONE, ids=str)
def test_what_holds_no_credential_is_left_alone(value: JsonValue) -> None:
    assert not holds_credential(value)
    assert not holds_credential({"within": [json.dumps(value)]})


def test_a_url_may_be_encoded() -> None:
    assert holds_credential(quote("https://ann:hunter2@example.com"))


PIECES = (
    *(
        '"',
        "'",
        "-",
        "--",
        "a-",
        "a.",
        "://",
        "a://",
        ":",
        "=",
        " ",
        "\n",
        "\t",
        "%",
        "\\",
        "{",
        "[",
    ),
    *(
        "token",
        "token:",
        "token=",
        "bearer ",
        "Basic a",
        "sk-",
        "eyJ",
        "eyJ-",
        "A_",
        "cookie-",
        "x: ",
        "--a ",
        "- ",
    ),
    *("?key=", "@", "user:", "-a-a", "key\n", '"a":', "$", "<", "S", "1:", "authorization"),
)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", PIECES)
def test_no_text_is_looked_at_again_from_each_of_its_signs(piece: str) -> None:
    """That would take minutes; four times as long as anything that is allowed."""
    for end in ("", "!", '=":@"x"'):
        holds_credential({"a": (piece * 64_000)[:64_000] + end})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_is_looked_through(value: JsonValue) -> None:
    assert holds_credential(value) in {True, False}


def test_text_in_text_may_be_nested_deeply() -> None:
    text = "[" * 150 + "]" * 150
    for _ in range(9):
        text = "[" * 150 + json.dumps(text) + "]" * 150
    assert not holds_credential(text)
