"""Keeps what a test does to the logs of the process out of the next test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def restored_logging() -> Iterator[None]:
    """Bring structlog and the root logger back to what they were before the block."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    access = logging.getLogger("uvicorn.access")
    was_disabled = access.disabled
    try:
        yield
    finally:
        structlog.reset_defaults()
        logging.captureWarnings(capture=False)
        root.handlers[:] = handlers
        root.setLevel(level)
        access.disabled = was_disabled
