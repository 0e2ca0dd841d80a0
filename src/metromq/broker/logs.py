"""Structured logs on standard error: `key=value` for people, one JSON object a line for collectors."""

import json
import logging
import sys
import time

from metromq.config import Log

LOGGER = logging.getLogger("metromq")


def event(level: int, what: str, **fields: object) -> None:
    """One event with its facts."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, what, extra={"fields": fields})


def info(what: str, **fields: object) -> None:
    event(logging.INFO, what, **fields)


def debug(what: str, **fields: object) -> None:
    event(logging.DEBUG, what, **fields)


def warning(what: str, **fields: object) -> None:
    event(logging.WARNING, what, **fields)


def error(what: str, **fields: object) -> None:
    event(logging.ERROR, what, **fields)


class _TextFormat(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        facts = "".join(f" {key}={_quoted(value)}" for key, value in fields.items())
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        text = f"{clock}.{int(record.msecs):03d}Z {record.levelname.lower():7} {record.getMessage()}{facts}"
        return text + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class _JsonFormat(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": record.created, "level": record.levelname.lower(), "event": record.getMessage()}
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c in text for c in ' "=\n') else text


def set_up(config: Log) -> None:
    """Called once by the process that owns standard error; a Broker inside a user's program leaves logging alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormat() if config.format == "json" else _TextFormat())
    LOGGER.handlers = [handler]
    LOGGER.propagate = False
    LOGGER.setLevel(config.level.upper())
