"""What an agent has to do next, and when: one place for all of its deadlines."""

from typing import Final, NamedTuple

from memqos.agent.configuration import RampConfig
from memqos.plan.changes import Change, magnitude

FIRST_RETRY: Final = 1.0
LAST_RETRY: Final = 300.0
"""Seconds between the attempts at something that fails."""


class Backoff:
    """When to try again, by key: each failure in a row doubles the wait."""

    def __init__(self, first: float = FIRST_RETRY, last: float = LAST_RETRY) -> None:
        self._first = first
        self._last = last
        self._failures: dict[str, int] = {}
        self.until: dict[str, float] = {}
        """Key → when it may be tried again."""

    def note_failure(self, key: str, now: float) -> float:
        """Note a failure; how long to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait = min(self._first * 2.0 ** min(failures, 30), self._last)
        self.until[key] = now + wait
        return wait

    def clear(self, key: str) -> None:
        """It went well, or was removed."""
        self._failures.pop(key, None)
        self.until.pop(key, None)

    def is_waiting(self, key: str, now: float) -> bool:
        """Whether it is too early."""
        return self.until.get(key, now) > now


def next_ramp_value(change: Change, usage: int, ramp: RampConfig, page_size: int) -> str | None:
    """What memory.high is set to now, on its way to what is planned; None to wait.

    It goes below what is in use by no more than a step, as the kernel takes away at once what lies
    above. Where it could not, the limit has been met already: going lower would not help.
    """
    target = magnitude(change.new)
    if ramp.off or usage <= target:
        return change.new
    down = int(usage * (1 - ramp.step)) // page_size * page_size
    if down <= target:
        return change.new
    return str(down) if down < magnitude(change.old) else None


POLL: Final = 1.0
"""Seconds between looks at the cgroups above the pods. Nothing notifies a write to their files, and
a kubelet that starts takes away all protection by them."""
RECHECK: Final = 1.0
"""Seconds after which a new cgroup is looked at again: the runtime may still be setting it up."""
_MAX_FETCHES: Final = 5
"""How often the source is asked about a cgroup it does not know."""
_FETCH_INTERVAL: Final = 0.25
"""Seconds between two questions, at the least."""


class Due(NamedTuple):
    """What is due."""

    is_full: bool = False
    """Whether to look at the whole node."""
    fetches_pods: bool = False
    """Whether to ask the source for the pods first."""
    confirms_kubelet: bool = False
    """Whether to ask the kubelet again what it is configured with."""


class Schedule:
    """Deadlines; times are those of any one clock."""

    def __init__(self, now: float, *, polls: bool) -> None:
        self.resync_at = now
        self.polls = polls
        self.backoff = Backoff()
        """By the path of a cgroup."""
        self.ramps: dict[str, float] = {}
        """Path of a cgroup → when its memory.high may go down a step."""
        self._pods: dict[str, float] = {}
        self._pod_of: dict[str, str | None] = {}
        """Path of a cgroup that waits → its pod's."""
        self.confirm_at: float | None = None
        """When to ask the kubelet for its configuration, before holes above pods are closed."""
        self._poll_at = now
        self._take_at: float | None = None
        self._fetch_at: float | None = None
        self._fetched_at = now - _FETCH_INTERVAL
        self._fetches = 0

    def schedule_pod(self, pod: str, at: float) -> None:
        """Have a pod looked at, no later than then."""
        self._pods[pod] = min(at, self._pods.get(pod, at))

    def schedule_ramp(self, path: str, pod: str | None, at: float) -> None:
        """Have memory.high of a cgroup go on down then."""
        self.ramps[path] = at
        self._pod_of[path] = pod

    def back_off(self, path: str, pod: str | None, now: float) -> float:
        """Leave a cgroup for a while; for how long."""
        self._pod_of[path] = pod
        return self.backoff.note_failure(path, now)

    def schedule_reply(self, now: float) -> None:
        """A source has answered."""
        self._take_at = now

    def schedule_fetch(self, now: float) -> None:
        """The source has to be asked: there is something that it did not know."""
        self._fetches = 0
        self._fetch_at = max(now, self._fetched_at + _FETCH_INTERVAL)

    def schedule_refetch(self, now: float) -> None:
        """It still does not know."""
        if self._fetch_at is None and self._fetches < _MAX_FETCHES:
            self._fetch_at = now + 2.0 ** (self._fetches - 1)

    @property
    def due_at(self) -> float:
        """When there is something to do."""
        times = [self.resync_at, *self._pods.values(), *self.ramps.values()]
        times += self.backoff.until.values()
        if self.polls:
            times.append(self._poll_at)
        times += [at for at in (self._take_at, self._fetch_at, self.confirm_at) if at is not None]
        return min(times)

    def take_due(self, now: float) -> Due:
        """What is due by now, and is not any more; the pods are taken apart."""
        whole = now >= self.resync_at
        fetches = whole or (self._fetch_at is not None and self._fetch_at <= now)
        if fetches:
            self._fetch_at = None
            self._fetched_at = now
            self._fetches += 1
        confirms = self.confirm_at is not None and self.confirm_at <= now
        if confirms:
            self.confirm_at = None
        self._poll_at = now + POLL
        self._take_at = None
        return Due(whole, fetches, confirms)

    def take_pods(self, now: float) -> frozenset[str]:
        """The paths of pods to look at by now."""
        pods = {pod for pod, at in self._pods.items() if at <= now}
        for pod in pods:
            del self._pods[pod]
        for waiting in (self.ramps, self.backoff.until):
            for path in [path for path, at in waiting.items() if at <= now]:
                del waiting[path]
                pod_of = self._pod_of.get(path)
                if pod_of is not None:
                    pods.add(pod_of)
        return frozenset(pods)

    def forget(self, path: str) -> None:
        """A cgroup was removed."""
        self._pods.pop(path, None)
        self.ramps.pop(path, None)
        self.backoff.clear(path)
        self._pod_of.pop(path, None)
