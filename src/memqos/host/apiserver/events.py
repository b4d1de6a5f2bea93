"""Post Events on pods from a thread of its own: no caller waits for them, and losing one is fine.

`memqos.kube.events` decides which Events are sent. They wait in a bounded queue, are sent at a
bounded rate, and retried while the server is unreachable or busy. Events that RBAC forbids are
dropped, and their namespace is tried again after a pause.
"""

import random
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Condition, Thread
from typing import Final

import msgspec

from memqos.errors import MemqosError
from memqos.host.apiserver.api_errors import BUSY, ApiError, unforeseen_error
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.resources import ApiRequest
from memqos.host.backoff import backoff_delay
from memqos.kube.events import Bucket, Create, EventBook, PodEvent, Refresh, event_of, series_of

QUEUE_LIMIT: Final = 512
"""Beyond this the oldest are dropped."""
PAUSE_SECONDS: Final = 300.0
"""How long nothing is sent to a namespace that forbids it."""
AT_ONCE: Final = 30
SECONDS_EACH: Final = 5.0
"""A node sends so many Events at once, then one in so many seconds."""
_TEMPORARY: Final = BUSY | {0, 401}
"""Statuses that may soon be others; 0 is no answer at all."""
_UNFORESEEN: Final = -1
"""In place of a status: an error of memqos itself."""
_EXISTS: Final = 409
_NOT_FOUND: Final = 404
_FORBIDDEN: Final = 403
_GROUP: Final = "events.k8s.io"
_STOP_SECONDS: Final = 2.0


class EventPoster:
    """Queues what happened, without waiting, and sends it as Events."""

    def __init__(
        self,
        server: ApiClient,
        instance: str,
        *,
        pause: float = PAUSE_SECONDS,
        slowness: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`instance` is the reporter: the node's name. Pauses are `slowness` times as long."""
        self.sent = 0
        """Events that the server accepted."""
        self._server = server
        self._instance = instance
        self._pause = pause
        self._slowness = slowness
        self._clock = clock
        self._book = EventBook()
        self._waiting: deque[Create | Refresh] = deque()
        self._turn = Condition()
        self._is_stopped = False
        self._fault: MemqosError | None = None
        self._complaint: MemqosError | None = None
        self._complained: set[int] = set()
        self._of_node = Bucket(AT_ONCE, SECONDS_EACH * slowness)
        self._muted_until: dict[str, float] = {}
        """Namespace → until when nothing is sent there."""
        self._failures = 0
        self._thread = Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End; Events in the queue are sent if that needs no waiting."""
        with self._turn:
            self._is_stopped = True
            self._turn.notify()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def post(self, happening: PodEvent, ago: float = 0.0) -> None:
        """Queue what happened so many seconds ago. Never waits, and never fails."""
        with self._turn:
            if self._clock() < self._muted_until.get(happening.namespace, 0.0):
                self._book.dropped += 1
                return
            now = time.time()
            action = self._book.decide(happening, now)
            if action is not None:
                action = msgspec.structs.replace(action, at=now - ago)
                if len(self._waiting) >= QUEUE_LIMIT:
                    self._drop(self._waiting.popleft())
                self._waiting.append(action)
                self._turn.notify()

    def forget_pods_but(self, uids: set[str]) -> None:
        """Drop the state of all pods but these."""
        with self._turn:
            self._book.forget_pods_but(uids)

    @property
    def dropped(self) -> int:
        """How many Events were dropped: too many, or not sent."""
        return self._book.dropped

    @property
    def waiting(self) -> int:
        """How many Events are in the queue."""
        return len(self._waiting)

    @property
    def fault(self) -> MemqosError | None:
        """Why nothing can be sent now; for a missing right, with its RBAC rule."""
        return self._fault

    def complaint(self) -> MemqosError | None:
        """An error to report to the user, once."""
        with self._turn:
            complaint, self._complaint = self._complaint, None
        return complaint

    def _run(self) -> None:
        while (action := self._next()) is not None:
            try:
                self._send(action)
            except MemqosError as error:
                self._record_failure(action, error)
            except Exception as error:
                # A thread that dies of an unforeseen error would post nothing any more. This Event
                # may be why: it is not sent again.
                with self._turn:
                    self._note_fault(unforeseen_error(self._server.where, error), _UNFORESEEN)
                    self._drop(action)
            else:
                self._record_success()

    def _next(self) -> Create | Refresh | None:
        """The next Event, when the rate allows it; None where there will be none."""
        with self._turn:
            while True:
                if not self._waiting:
                    if self._is_stopped:
                        return None
                    self._turn.wait()
                elif self._of_node.has(self._clock()):
                    self._of_node.take()
                    return self._waiting.popleft()
                elif self._is_stopped:
                    return None
                else:
                    self._turn.wait(self._of_node.next_in)

    def _send(self, action: Create | Refresh) -> None:
        happened = datetime.fromtimestamp(action.at, UTC)
        at = happened.isoformat(timespec="microseconds").replace("+00:00", "Z")
        if isinstance(action, Create):
            body = msgspec.json.encode(event_of(action, self._instance, at))
            self._server.send("POST", _request("create", action), body, "application/json")
        else:
            body = msgspec.json.encode(series_of(action, at))
            kind = "application/merge-patch+json"
            self._server.send("PATCH", _request("patch", action), body, kind)

    def _record_success(self) -> None:
        with self._turn:
            self.sent += 1
            self._fault = None
            self._failures = 0
            # A right may be granted in one namespace and missing in another.
            self._complained &= {_FORBIDDEN}

    def _record_failure(self, action: Create | Refresh, error: MemqosError) -> None:
        status = error.status if isinstance(error, ApiError) else 0
        with self._turn:
            if status == _EXISTS and isinstance(action, Create):
                return  # an earlier agent sent it
            if status == _NOT_FOUND or (
                isinstance(error, ApiError) and error.is_namespace_terminating
            ):
                # The event expired, or its namespace is being deleted.
                self._book.forget(action.happening)
                return
            self._note_fault(error, status)
            if status in _TEMPORARY:
                self._try_again(action, error)
                return
            self._drop(action)
            if status == _FORBIDDEN:
                self._mute_namespace(action.happening.namespace)

    def _note_fault(self, error: MemqosError, status: int) -> None:
        """Note why an Event is not sent; of each status one is reported."""
        self._fault = error
        if status not in self._complained:
            self._complained.add(status)
            self._complaint = error

    def _try_again(self, action: Create | Refresh, error: MemqosError) -> None:
        """Requeue an Event, and wait before the next one is sent."""
        if len(self._waiting) < QUEUE_LIMIT:
            self._waiting.appendleft(action)
        else:
            self._drop(action)
        after = error.retry_after if isinstance(error, ApiError) else None
        until = (
            self._clock() + backoff_delay(self._failures, after, random.random()) * self._slowness
        )
        self._failures += 1
        while not self._is_stopped and (remaining := until - self._clock()) > 0:
            self._turn.wait(remaining)
        if self._is_stopped:
            for each in self._waiting:
                self._drop(each)
            self._waiting.clear()

    def _mute_namespace(self, namespace: str) -> None:
        now = self._clock()
        self._muted_until = {
            name: until for name, until in self._muted_until.items() if until > now
        }
        self._muted_until[namespace] = now + self._pause
        kept = [each for each in self._waiting if each.happening.namespace != namespace]
        for each in self._waiting:
            if each.happening.namespace == namespace:
                self._drop(each)
        self._waiting = deque(kept)

    def _drop(self, action: Create | Refresh) -> None:
        """Count a dropped Event, and have the next of its kind sent again."""
        self._book.dropped += 1
        self._book.forget(action.happening)


def _request(verb: str, action: Create | Refresh) -> ApiRequest:
    namespace = action.happening.namespace
    path = f"/apis/{_GROUP}/v1/namespaces/{namespace}/events"
    if verb == "patch":
        path = f"{path}/{action.name}"
    return ApiRequest(verb=verb, path=path, group=_GROUP, resource="events", namespace=namespace)
