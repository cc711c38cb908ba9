"""Logs of a process that uses the client: lines of JSON without message bodies, tokens and addresses."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from typing_extensions import override

# Libraries of platforms log what people write, and addresses that contain a token. Of their records
# only the name, the level and the type of an error are kept.
_OURS: Final = ("chatlane_adapters", "chatlane_bridges", "chatlane_client", "chatlane_console")
# Attributes of every record; whatever else a record has was passed as `extra`.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as a line of JSON."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        is_ours = record.name.partition(".")[0] in _OURS
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage() if is_ours else "library",
        }
        if is_ours:
            line |= {key: value for key, value in vars(record).items() if key not in _USUAL}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line, default=str)


def configure_logs(level: str) -> None:
    """Write the logs of this process to standard error.

    Args:
        level: Lowest level of our own records; those of libraries begin at `warning`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())
