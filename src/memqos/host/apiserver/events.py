"""Events on pods, sent from a thread of its own: nobody waits for them, and none is worth trouble.

What is worth telling is decided by `memqos.api.events`.
"""

import time
from collections import deque
from datetime import UTC, datetime
from threading import Condition, Thread
from typing import Final

import msgspec

from memqos.api.events import Create, EventBook, Happening, Refresh, event_of, series_of
from memqos.errors import MemqosError
from memqos.host.apiserver.connection import ApiServer
from memqos.host.apiserver.refusals import Refused
from memqos.host.apiserver.resources import Request

WAITING: Final = 200
"""More than this are dropped, the oldest first."""
PAUSE_SECONDS: Final = 300.0
"""How long nothing is sent after the server would not have it."""
_GROUP: Final = "events.k8s.io"
_STOP_SECONDS: Final = 2.0


class EventPoster:
    """Takes what happened, at once, and sends what of it is worth telling."""

    def __init__(self, server: ApiServer, instance: str, *, pause: float = PAUSE_SECONDS) -> None:
        """`instance` is who reports: the node's name."""
        self._server = server
        self._instance = instance
        self._pause = pause
        self._book = EventBook()
        self._waiting: deque[Create | Refresh] = deque(maxlen=WAITING)
        self._turn = Condition()
        self._is_stopped = False
        self._fault: MemqosError | None = None
        self._quiet_until = 0.0
        self._thread = Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End; what still waits is sent if it can be at once."""
        with self._turn:
            self._is_stopped = True
            self._turn.notify()
        self._thread.join(_STOP_SECONDS)

    def tell(self, happening: Happening) -> None:
        """Something happened. Never waits, and never fails."""
        with self._turn:
            if time.monotonic() < self._quiet_until:
                self._book.dropped += 1
                return
            told = self._book.decide(happening, time.time())
            if told is not None:
                self._book.dropped += len(self._waiting) == WAITING
                self._waiting.append(told)
                self._turn.notify()

    def forget_pods_but(self, uids: set[str]) -> None:
        """These are the pods there are: what is known of others can go."""
        with self._turn:
            self._book.forget_pods_but(uids)

    @property
    def dropped(self) -> int:
        """How many were too many, or could not be sent."""
        return self._book.dropped

    @property
    def fault(self) -> MemqosError | None:
        """Why nothing is sent now; a missing right comes with its rule."""
        return self._fault

    def _run(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._waiting or self._is_stopped)
                if not self._waiting:
                    return
                told = self._waiting.popleft()
            try:
                self._send(told)
                self._fault = None
            except MemqosError as error:
                self._given_up(told, error)

    def _send(self, told: Create | Refresh) -> None:
        at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        if isinstance(told, Create):
            body = msgspec.json.encode(event_of(told, self._instance, at))
            self._server.send("POST", _request("create", told), body, "application/json")
            return
        body = msgspec.json.encode(series_of(told, at))
        try:
            self._server.send(
                "PATCH", _request("patch", told), body, "application/merge-patch+json"
            )
        except Refused as error:
            if error.status != 404:
                raise
            # The server has let go of it sooner than expected.
            with self._turn:
                self._book.forget(told.happening)

    def _given_up(self, told: Create | Refresh, error: MemqosError) -> None:
        with self._turn:
            self._fault = error
            self._book.forget(told.happening)
            self._book.dropped += 1 + len(self._waiting)
            self._waiting.clear()
            self._quiet_until = time.monotonic() + self._pause


def _request(verb: str, told: Create | Refresh) -> Request:
    namespace = told.happening.namespace
    path = f"/apis/{_GROUP}/v1/namespaces/{namespace}/events"
    if verb == "patch":
        path = f"{path}/{told.name}"
    return Request(verb, path, group=_GROUP, resource="events", namespace=namespace)
