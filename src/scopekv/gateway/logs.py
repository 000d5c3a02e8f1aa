"""How the gateway's log looks: lines for people, or one JSON object a line for collectors.

What is logged never holds a prompt, key, ticket or token id; neither form adds any. In JSON an
error is its type and place: a stack trace would end with the error's own words, which others wrote.
"""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

LogFormat = Literal["text", "json"]
_TEXT = "%(asctime)s %(levelname)s %(message)s"


class JsonFormatter(logging.Formatter):
    """An object a line: `time` (RFC 3339), `level`, `logger`, `message`, maybe `error`, `place`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])
            if frames:
                line["place"] = f"{frames[-1].name}:{frames[-1].lineno}"
        return msgspec.json.encode(line).decode()


def set_up_logs(form: LogFormat) -> None:
    """Send the log to stderr in this form. Replaces what was set up before."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
