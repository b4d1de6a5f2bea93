"""What an agent writes to its log: a line an event, for people or for programs."""

import logging
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from memqos.agent.configuration import LogFormat
from memqos.agent.tally import LogEvent, LogSeverity
from memqos.draw.terminal import visible

_PRIORITIES: Final[Mapping[LogSeverity, int]] = {"debug": 7, "info": 6, "warning": 4, "error": 3}
"""As syslog counts them; the journal of systemd reads them at the start of a line."""
_QUIET: Final = "debug"


class EventLog:
    """Writes events, one a line; a line never holds another."""

    def __init__(
        self, form: LogFormat, *, to_journal: bool = False, stream: TextIO | None = None
    ) -> None:
        self.form = form
        self._to_journal = to_journal
        self._stream = sys.stderr if stream is None else stream

    def log(self, severity: LogSeverity, what: str, **fields: str | int | float) -> None:
        self.write([LogEvent(severity, what, fields)])

    def write(self, events: Iterable[LogEvent]) -> None:
        """Write all of them at once."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = self._as_json if self.form == "json" else self._as_text
        lines = [line(event, now) for event in events if event.severity != _QUIET]
        if lines:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()

    def _as_json(self, event: LogEvent, now: str) -> str:
        record = {"time": now, "level": event.severity, "message": event.what, **event.fields}
        return visible(msgspec.json.encode(record).decode())

    def _as_text(self, event: LogEvent, now: str) -> str:
        # The journal has a time of its own, and takes the priority from the front.
        front = f"<{_PRIORITIES[event.severity]}>" if self._to_journal else f"{now} "
        fields = [f"{name}={_quote(str(value))}" for name, value in event.fields.items()]
        return " ".join([f"{front}{event.severity}:", visible(event.what), *fields])


class LibraryLogHandler(logging.Handler):
    """Has what libraries log written as events."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(
            "error" if record.levelno >= logging.ERROR else "warning", record.getMessage()
        )


def _quote(text: str) -> str:
    if text and text.isprintable() and not set(text) & set(' "='):
        return text
    return visible(msgspec.json.encode(text).decode())
