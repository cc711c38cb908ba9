"""Metrics of the process that sends webhooks, and its health over HTTP."""

from collections.abc import Callable
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, generate_latest
from starlette.responses import PlainTextResponse, Response


class AttemptOutcome(StrEnum):
    """How an attempt to send an event ended."""

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    FAILED = "failed"


ATTEMPTS: Final = Counter(
    "chatlane_webhook_attempts", "Attempts to send an event, by outcome.", ("endpoint", "outcome")
)
GIVEN_UP: Final = Counter("chatlane_webhook_given_up", "Events that were given up.", ("endpoint",))
WAITING: Final = Gauge(
    "chatlane_webhook_waiting_events",
    "Events that were read and are not confirmed, or wait for an earlier one.",
    ("endpoint",),
)
OLDEST: Final = Gauge(
    "chatlane_webhook_oldest_seconds", "Age of the oldest of them in seconds.", ("endpoint",)
)


def health_app(is_ready: Callable[[], bool]) -> FastAPI:
    """Return an application with `/livez`, `/readyz` and `/metrics`."""
    app = FastAPI(title="webhooks", openapi_url=None, docs_url=None, redoc_url=None)

    async def live() -> Response:
        return PlainTextResponse("ok")

    async def ready() -> Response:
        status = HTTPStatus.OK if is_ready() else HTTPStatus.SERVICE_UNAVAILABLE
        return PlainTextResponse(status.phrase, status)

    async def metrics() -> Response:
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)

    for path, answer in (("/livez", live), ("/readyz", ready), ("/metrics", metrics)):
        app.add_api_route(path, answer, response_model=None)
    return app
