"""Keep a copy of a cluster's objects up to date: list, watch, and again.

`cache` states the invariant of the copy. The thread here lists, watches from the list's version,
resumes from the last version received when a watch ends or breaks off, and lists again when that
version has expired. A watch without a word past its time is ended, as the connection may be dead;
and once an hour a list is taken all the same, in case etcd was restored to an earlier state.
"""

import random
import time
from collections.abc import Callable
from threading import Condition, Event, Thread
from typing import Final, Generic, TypeVar

import msgspec

from memqos.errors import InputError, MemqosError, Unreachable
from memqos.host.apiserver.api_errors import GONE, ApiError, unforeseen_error
from memqos.host.apiserver.cache import HasMetadata, ObjectCache, WatchInterrupted
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.pager import LIST_PAGE_SIZE, list_objects
from memqos.host.apiserver.resources import (
    EVERYTHING,
    ApiRequest,
    ApiResource,
    Selection,
    watch_request,
)
from memqos.host.apiserver.responses import ResponseStream
from memqos.host.backoff import FIRST_DELAY, backoff_delay

_T = TypeVar("_T", bound=HasMetadata)

# resourceVersion "0" is served from the watch cache, whatever its age; without one the server reads
# etcd, which the agents of all nodes at once would overload (Kubernetes docs, "API concepts").
_ANY_VERSION: Final = "0"
_MOST_RECENT: Final = ""
_STOP_SECONDS: Final = 2.0
_LARGEST_LIST: Final = 16 << 20
"""Bytes of a list: that of a node with 500 pods is 10 MiB."""
_MOST_DECODED: Final = 40 << 20
"""Bytes that a list may take while it is decoded, by `decoded_size`. The shipped agent may use
128Mi: 45 of its own, the list as it came, and the copy before and after it. A pod of 20 KiB takes
about 70 KiB by this measure."""
_LARGEST: Final = 24 << 20
"""Bytes of the copy, by the same measure: about 900 pods of that size."""


class WatchTimings(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take, in seconds."""

    watch: tuple[int, int] = (240, 480)
    """How long the server keeps a watch open: random in between, so that not all end at once."""
    read_timeout: float = 15.0
    """What is added to that before a watch counts as dead; twice as much while data arrives."""
    event: float = 60.0
    """How long an event may take to arrive, once its first byte has."""
    stale: float = 600.0
    """A copy does not count as synced after this long without a complete list, event or end of a
    watch. A watch without events ends sooner."""
    relist: float = 3600.0
    """After this a list is taken even without an error."""
    short: float = 1.0
    """A watch that ended sooner, without an event, is followed by a pause."""
    slowness: float = 1.0
    """A factor for all pauses."""


DEFAULT_TIMINGS: Final = WatchTimings()


class Reflector(Generic[_T]):
    """Follows the objects of one kind in a thread of its own."""

    def __init__(
        self,
        server: ApiClient,
        resource: ApiResource[_T],
        selection: Selection = EVERYTHING,
        *,
        on_change: Callable[[], None] | None = None,
        timings: WatchTimings = DEFAULT_TIMINGS,
        page: int = LIST_PAGE_SIZE,
    ) -> None:
        """`on_change` is called in the watch's thread whenever the copy has changed."""
        self._server = server
        self._resource = resource
        self._selection = selection
        self._on_change = on_change
        self._timings = timings
        self._page = page
        self._cache: ObjectCache[_T] = ObjectCache(resource.type, _LARGEST)
        self._turn = Condition()
        """Locked while the copy changes, and notified when it has."""
        self._stopped = Event()
        self._stream: ResponseStream | None = None
        self._fault: MemqosError | None = None
        self._is_synced = False
        self._answered_at = 0.0
        self._received_at = 0.0
        """When the last complete list, event or end of a watch arrived."""
        self._listed_at = 0.0
        self._failures = 0
        self._lists_from = _ANY_VERSION
        self._thread = Thread(target=self._run, name=f"watch {resource.plural}", daemon=True)

    def start(self) -> None:
        """Start the thread; the copy is empty until `wait` returns."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits for it a moment."""
        self._stopped.set()
        with self._turn:
            stream = self._stream
            self._turn.notify_all()
        if stream is not None:
            stream.stop()
        if self._thread.is_alive():
            # A list under way cannot be cancelled; the thread is a daemon and does not block exit.
            self._thread.join(_STOP_SECONDS)

    def wait(self, seconds: float) -> None:
        """Wait for the first list; raises the error that prevents it, else Unreachable."""
        with self._turn:
            self._turn.wait_for(lambda: self._is_synced or self._stopped.is_set(), seconds)
            if self._is_synced:
                return
            if self._fault is not None:
                raise self._fault
        raise Unreachable(
            f"{self._server.where}: no list of {self._resource.plural} within {seconds:g} s",
            hint="check the API server and the network",
        )

    def objects(self) -> list[_T]:
        """The current copy; empty before the first list, so `wait` for that."""
        with self._turn:
            return list(self._cache.objects.values())

    @property
    def is_synced(self) -> bool:
        """Whether there was a list, and its watch runs: otherwise the copy may be outdated."""
        return self._is_synced and not self._is_stale

    @property
    def version(self) -> str:
        """The newest resourceVersion observed; empty before the first list."""
        with self._turn:
            return self._cache.newest_version

    @property
    def fault(self) -> MemqosError | None:
        """Why the copy is not kept up to date now; None where it is."""
        if self._fault is None and self._is_synced and self._is_stale:
            what = f"no complete response for {self._resource.plural} for {self._timings.stale:g} s"
            return Unreachable(f"{self._server.where}: {what}", hint="check the API server")
        return self._fault

    @property
    def stale_for(self) -> float:
        """Seconds since the server's last answer."""
        return time.monotonic() - self._answered_at

    @property
    def _is_stale(self) -> bool:
        return time.monotonic() - self._received_at > self._timings.stale

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                error = self._list_and_follow()
                if error is not None:
                    self._pause(error)
        finally:
            # Whatever ended it, the copy is not updated any more.
            with self._turn:
                self._is_synced = False
                if not self._stopped.is_set():
                    what = f"the watch of {self._resource.plural} has ended"
                    self._fault = Unreachable(
                        f"{self._server.where}: {what}", hint="restart memqos"
                    )
                self._turn.notify_all()

    def _list_and_follow(self) -> MemqosError | None:
        """List where that is due, and watch until the watch ends; the error that ended it."""
        try:
            if self._cache.version is None or self._is_due:
                self._list()
            self._follow()
        except WatchInterrupted as error:
            status = error.status
            return self._server.error_of(self._request(), status.code or 500, status)
        except MemqosError as error:
            return error
        except Exception as error:
            # A thread that dies of an unforeseen error would leave a copy that only looks current.
            self._cache.forget_version()
            return unforeseen_error(self._server.where, error)
        return None

    @property
    def _is_due(self) -> bool:
        return time.monotonic() - self._listed_at > self._timings.relist

    def _list(self) -> None:
        try:
            found = list_objects(
                self._server,
                self._resource,
                self._selection,
                not_older_than=self._lists_from,
                page=self._page,
                largest=_LARGEST_LIST,
                most_decoded=_MOST_DECODED,
            )
        except ApiError as error:
            # As client-go's reflector does: 410 for a version the cache has dropped, a version too
            # large for one it has not reached (after a restore of etcd): list from etcd next.
            if error.status == GONE or error.is_version_ahead:
                self._lists_from = _MOST_RECENT
            raise
        with self._turn:
            changed = self._cache.replace(found.items, found.version)
            changed = changed or not self._is_synced
            self._is_synced = True
            self._record_answer(self._cache.newest_version)
            self._listed_at = time.monotonic()
            self._turn.notify_all()
        self._notify_change(changed)

    def _follow(self) -> None:
        began, had_events = time.monotonic(), False
        open_for = random.randint(*self._timings.watch)
        request = self._request(open_for)
        try:
            read_timeout = open_for + self._timings.read_timeout
            longest = read_timeout + self._timings.read_timeout
            with self._server.stream(request, read_timeout, longest, self._timings.event) as stream:
                with self._turn:
                    self._stream = stream
                    self._mark_connected()
                if self._stopped.is_set():
                    return
                for line in stream.lines():
                    with self._turn:
                        change = self._cache.apply(line)
                        self._record_answer(self._cache.newest_version)
                    if change == "expired":
                        self._schedule_relist()
                        return
                    had_events, self._failures = True, 0
                    self._notify_change(change == "changed")
        except ApiError as error:
            if error.status != GONE and not error.is_version_ahead:
                raise
            if error.is_version_ahead:
                self._lists_from = _MOST_RECENT
            self._schedule_relist()
            return
        finally:
            with self._turn:
                self._stream = None
        if time.monotonic() - began < self._timings.short and not self._stopped.is_set():
            if had_events:
                self._stopped.wait(FIRST_DELAY * self._timings.slowness)
                return
            what = f"{self._server.where}: a watch of {self._resource.plural} ended at once"
            raise Unreachable(what, hint="check the API server's log")
        self._failures = 0
        self._received_at = time.monotonic()

    def _schedule_relist(self) -> None:
        """Have a list come next: at once, unless the last one expired at once too."""
        self._cache.forget_version()
        if self._failures:
            self._stopped.wait(
                backoff_delay(self._failures, None, random.random()) * self._timings.slowness
            )
        self._failures += 1

    def _request(self, open_for: int = 0) -> ApiRequest:
        return watch_request(
            self._resource,
            self._selection,
            resourceVersion=self._cache.version or "",
            allowWatchBookmarks="true",
            timeoutSeconds=str(open_for),
        )

    def _record_answer(self, version: str) -> None:
        self._answered_at = self._received_at = time.monotonic()
        self._fault = None
        self._lists_from = version or _MOST_RECENT

    def _mark_connected(self) -> None:
        """Record that the server has accepted a watch: its first event may be long in coming."""
        # An object that cannot be decoded is sent again with each list.
        if not isinstance(self._fault, InputError):
            self._fault = None
            self._answered_at = time.monotonic()

    def _notify_change(self, changed: bool) -> None:
        if changed and self._on_change is not None:
            self._on_change()

    def _pause(self, error: MemqosError) -> None:
        if self._stopped.is_set():
            return
        after = error.retry_after if isinstance(error, ApiError) else None
        with self._turn:
            self._fault = error
            self._turn.notify_all()
        wait = backoff_delay(self._failures, after, random.random()) * self._timings.slowness
        self._failures += 1
        self._stopped.wait(wait)
