"""The OpenAPI document of the HTTP API."""

from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from chatlane_console.http.guard import CSRF_HEADER
from chatlane_console.http.problems import MEDIA_TYPE, Problem

_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_CSRF_PARAMETER: Final = {
    "name": CSRF_HEADER,
    "in": "header",
    "required": True,
    "description": "Any value; shows that no page of another site makes the request.",
    "schema": {"type": "string", "const": "1"},
}
_COOKIE: Final = {
    "type": "apiKey",
    "in": "cookie",
    "name": "chatlane-console",
    "description": "Set by sign-in; `__Host-chatlane-console` over TLS. Behind a trusted proxy, its "
    "headers take the place of the cookie.",
}
# Schemas of the errors that FastAPI would answer with.
_UNUSED: Final = ("HTTPValidationError", "ValidationError")


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the document of an application: its problems, its cookie, its header for changes."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        routes=app.routes,
        description="A change is made once for each `Idempotency-Key`. Errors are problems "
        "(RFC 9457), whose `code` is for programs.",
    )
    schemas = document["components"]["schemas"]
    for name in _UNUSED:
        schemas.pop(name, None)
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schemas["Problem"].pop("$defs"))
    document["components"]["securitySchemes"] = {"cookie": _COOKIE}
    document["security"] = [{"cookie": []}]
    for operations in document["paths"].values():
        for method, operation in operations.items():
            responses = operation["responses"]
            responses.pop(str(HTTPStatus.UNPROCESSABLE_ENTITY.value), None)
            responses["default"] = {
                "description": "A problem (RFC 9457).",
                "content": {MEDIA_TYPE: {"schema": _PROBLEM}},
            }
            if method not in {"get", "head"}:
                operation.setdefault("parameters", []).append(_CSRF_PARAMETER)
    return document
