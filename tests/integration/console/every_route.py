"""Every route of the OpenAPI document, with a request that it takes."""

import base64
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

from typing_extensions import override

from chatlane_console.application import API_PATH, OPERATOR_PATH, api_document

CONTENT: Final = base64.b64encode(
    gzip.compress(b'{"type":"user","message":{"role":"user","content":"words of a file"}}')
).decode()

# Bodies and queries of the routes that need them, by method and end of the path.
_BODIES: Final[Mapping[tuple[str, str], dict[str, Any]]] = {
    ("post", "/sessions"): {},
    ("patch", "/sessions/{session_id}"): {"title": "taken over"},
    ("post", "/messages"): {"text": "forged words"},
    ("post", "/question"): {"question_id": str(uuid4()), "value": "yes"},
    ("post", "/files"): {"words": "of a file"},
    ("post", "/operator/erasures"): {"id": "nobody"},
    ("put", "/draft"): {"text": "forged words"},
    ("put", "/read-mark"): {"through_seq": 1},
    ("post", "/projects"): {"name": "Plans"},
    ("post", "/imports"): {"source": "claude_code", "name": "a.jsonl", "content": CONTENT},
    ("put", "/projects"): {"project_ids": [str(uuid4())]},
    ("patch", "/projects/{project_id}"): {"name": "taken over"},
    ("post", "/fork"): {},
    ("post", "/switch"): {
        "session_key": "agent:main:x:y:dm:z",
        "expected_session_id": str(uuid4()),
    },
    ("post", "/rewind"): {"turns": 1},
    ("post", "/restore"): {"removal": 1},
    ("post", "/dead-letters/retry"): {"letter_ids": [str(uuid4())]},
    ("post", "/takeover"): {},
    ("post", "/speak"): {"text": "hello"},
    ("post", "/operator/explain"): {"event": "{}"},
    ("post", "/dead-letters/drop"): {"letter_ids": [str(uuid4())]},
}
_QUERIES: Final = {
    "/search": {"q": "secret"},
    "/preview": {"action": "retry"},
    "/files": {"name": "a.txt"},
    "/people/export": {"id": "nobody"},
}
_HEADERS: Final = {"/restore": {"If-Match": '"0.0"'}}
_SAFE: Final = frozenset({"get", "head"})


@dataclass(frozen=True)
class Route:
    """A route, and a request that it takes."""

    method: str
    path: str

    @override
    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def is_for_operators(self) -> bool:
        return self.path.startswith(OPERATOR_PATH)

    @property
    def is_about_a_session(self) -> bool:
        return "{session_id}" in self.path

    @property
    def is_about_a_folder(self) -> bool:
        return "{project_id}" in self.path

    @property
    def is_about_an_erasure(self) -> bool:
        return "{erasure_id}" in self.path

    @property
    def is_change(self) -> bool:
        return self.method not in _SAFE

    @property
    def is_stream(self) -> bool:
        return self.path.endswith("/events")

    def request(self, session_id: str, project_id: str = str(UUID(int=7))) -> dict[str, Any]:
        """Return a request about a session or a folder, as arguments of a client."""
        path = self.path.replace("{session_id}", session_id).replace("{seq}", "1")
        path = path.replace("{letter_id}", str(uuid4())).replace("{place}", "0")
        path = path.replace("{erasure_id}", str(uuid4()))
        path = path.replace("{project_id}", project_id)
        request: dict[str, Any] = {"method": self.method.upper(), "url": path}
        for (method, end), body in _BODIES.items():
            if self.method == method and self.path.endswith(end):
                request["json"] = body
        for end, query in _QUERIES.items():
            if self.path.endswith(end):
                request["params"] = query
        for end, headers in _HEADERS.items():
            if self.path.endswith(end):
                request["headers"] = headers
        return request


def every_route() -> Iterator[Route]:
    """Yield the routes of the document."""
    for path, operations in api_document()["paths"].items():
        assert path.startswith(API_PATH)
        for method in operations:
            yield Route(method, path)


ROUTES: Final = tuple(every_route())
