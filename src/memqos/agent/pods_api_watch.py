"""The pods of the kubelet's PodsAPI, watched over its socket."""

import os
import random
import time
from collections.abc import Callable, Iterator
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.converge.pod_sources import (
    PODS_API_SOCKET,
    PodSource,
    describe_pods_api,
)
from memqos.errors import MemqosError, Unreachable
from memqos.host.backoff import backoff_delay
from memqos.kube.pod import Pod

if TYPE_CHECKING:
    from memqos.host.pods_api import PodsApiClient, PodWatchEvent

_COPY_BYTES: Final = 64 << 20
"""Of all pods that the PodsAPI lists."""
_STOP_SECONDS: Final = 2.0


class PodsApiTimings(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take, in seconds."""

    answer: float = 5.0
    """How long the kubelet may be silent before its first answer, and within its list."""
    renewal: tuple[float, float] = (1500.0, 2100.0)
    """A watch is renewed after a time in between, as the list that comes with a new one would show
    a missed event."""
    short: float = 10.0
    """A watch that ended sooner counts as a failure, and is followed by a longer pause."""
    silent: float = 60.0
    """How long no watch may be open before the pods count as stale."""
    unlisted: float = 60.0
    """How long a pod stays known that is missing in a new list. A kubelet of 1.36, where the gate
    is alpha, lists static pods alone until it has reached the API server; from 1.37 on it refuses
    to list until then."""
    slowness: float = 1.0
    """A factor for all pauses."""


_DEFAULT_TIMINGS: Final = PodsApiTimings()


class WatchedPodsApi(PodSource):
    """The pods of a kubelet, kept as its watch says by a thread.

    A new watch begins with all pods, and the copy is replaced once these are complete: a watch that
    the kubelet cuts off, as it does with one that is 100 events behind, takes no pod away. A pod
    that is missing in a new list is removed by a later list that lacks it, too, or by an event.
    Without a watch the last copy stays. `on_change` is called from the thread.
    """

    def __init__(
        self,
        socket: str = PODS_API_SOCKET,
        *,
        on_change: Callable[[], None] | None = None,
        timings: PodsApiTimings = _DEFAULT_TIMINGS,
    ) -> None:
        self.socket = socket
        self._on_change = on_change
        self._timings = timings
        self._pods: dict[str, Pod] = {}
        """By UID."""
        self._unlisted: dict[str, float] = {}
        """UIDs of the copy that are not in the last list, and since when."""
        self._turn = Condition()
        """Locked while the copy changes, and notified when it has."""
        self._stopped = Event()
        self._client: PodsApiClient | None = None
        self._fault: MemqosError | None = None
        self._failing_since = 0.0
        self._is_starting = False
        self._is_synced = False
        self._patient_until = 0.0
        self._renew_at = 0.0
        self._failures = 0
        self._thread = Thread(target=self._run, name="watch PodsAPI", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        client = self._client
        if client is not None:
            client.interrupt()
        with self._turn:
            self._turn.notify_all()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def pods(self) -> list[Pod]:
        """All of them. Waits for the first answer; raises what keeps the kubelet from giving it."""
        self.wait()
        with self._turn:
            if self._is_synced:
                return list(self._pods.values())
            if self._fault is not None:
                raise self._fault
        raise Unreachable(
            f"{self.socket}: no list of pods within {self._timings.answer:g} s",
            hint="check the kubelet's log",
        )

    def wait(self) -> None:
        """Wait for the first list, or for what prevents it."""
        with self._turn:
            self._turn.wait_for(self._has_outcome, self._timings.answer)

    def describe(self) -> str:
        return describe_pods_api(self.socket)

    @property
    def has_pods(self) -> bool:
        """Whether there was an answer, however long ago."""
        return self._is_synced

    @property
    def is_served(self) -> bool:
        """Whether there is such a kubelet: its pods are known, or will be once it has started."""
        return self._is_starting or (self._is_synced and self.stale_reason is None)

    @property
    def stale_reason(self) -> str | None:
        fault, failing = self._fault, time.monotonic() - self._failing_since
        return None if fault is None or failing < self._timings.silent else str(fault)

    def _has_outcome(self) -> bool:
        return self._is_synced or self._fault is not None or self._stopped.is_set()

    # In the thread.

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            error = self._watch()
            if self._stopped.is_set():
                return
            if error is None or time.monotonic() - began > self._timings.short:
                self._failures = 0
            if error is not None:
                self._record_fault(error)
                wait = backoff_delay(self._failures, None, random.random())
                self._failures += 1
                self._stopped.wait(wait * self._timings.slowness)

    def _watch(self) -> MemqosError | None:
        """Follow one watch; what ended it, None where it is time for another."""
        if not os.path.exists(self.socket):
            # Kubelets before 1.37 have none: the client is not imported for them.
            self._is_starting = False
            return Unreachable(
                f"{self.socket}: no such socket",
                hint="the kubelet's feature gate PodsAPI is on by default from 1.37 on",
            )
        from memqos.host.pods_api import PodsApiClient, PodsNotReady

        client = self._client = PodsApiClient(self.socket, self._timings.answer)
        self._renew_at = time.monotonic() + random.uniform(*self._timings.renewal)
        self._patient_until = 0.0
        try:
            self._follow(client.watch_pods(self._patience))
        except PodsNotReady as error:
            self._is_starting = True
            return error
        except MemqosError as error:
            self._is_starting = False
            return None if time.monotonic() >= self._renew_at else error
        except Exception as error:
            # A thread that dies of an unforeseen error would leave a copy that only looks current.
            return Unreachable(f"{self.socket}: {type(error).__name__} in the watch of pods")
        return Unreachable(f"{self.socket}: the kubelet ended the watch")

    def _patience(self) -> float:
        """Seconds the next event may take: until the renewal, once all pods are known."""
        if self._stopped.is_set():
            return 0.0
        if not self._patient_until:
            return self._timings.answer
        return self._patient_until - time.monotonic()

    def _follow(self, events: "Iterator[PodWatchEvent]") -> None:
        first: dict[str, Pod] = {}
        size = 0
        for event in events:
            if event.type == "synced":
                self._replace(first)
                self._patient_until = self._renew_at
                break
            size += event.size
            if size > _COPY_BYTES:
                raise Unreachable(f"{self.socket}: the list of pods has no end")
            _apply(first, event)
        for event in events:
            if event.type != "synced":
                self._change(event)

    def _replace(self, pods: dict[str, Pod]) -> None:
        now, confirmation = time.monotonic(), self._timings.unlisted
        with self._turn:
            missing = self._pods.keys() - pods.keys()
            since = {uid: self._unlisted.get(uid, now) for uid in missing}
            self._unlisted = {uid: at for uid, at in since.items() if now - at < confirmation}
            if self._unlisted:
                self._renew_at = min(self._renew_at, now + confirmation)
            pods = {uid: self._pods[uid] for uid in self._unlisted} | pods
            is_changed = not self._is_synced or pods != self._pods
            self._pods = pods
            self._is_synced = True
            self._record_answer()
            self._turn.notify_all()
        self._notify(is_changed)

    def _change(self, event: "PodWatchEvent") -> None:
        uid = event.pod.metadata.uid or ""
        with self._turn:
            before = self._pods.get(uid)
            _apply(self._pods, event)
            self._unlisted.pop(uid, None)
            self._record_answer()
            is_changed = self._pods.get(uid) != before
        self._notify(is_changed)

    def _record_answer(self) -> None:
        self._fault = None
        self._is_starting = False

    def _record_fault(self, error: MemqosError) -> None:
        with self._turn:
            if self._fault is None:
                self._failing_since = time.monotonic()
            self._fault = error
            self._turn.notify_all()

    def _notify(self, is_changed: bool) -> None:
        if is_changed and self._on_change is not None:
            self._on_change()


def _apply(pods: dict[str, Pod], event: "PodWatchEvent") -> None:
    uid = event.pod.metadata.uid or ""
    if event.type == "deleted":
        pods.pop(uid, None)
    else:
        pods[uid] = event.pod
