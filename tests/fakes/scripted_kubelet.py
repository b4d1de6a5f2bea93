"""A kubelet that does to memory files what real ones were seen to do, and nothing else.

Its rules are written down here once more, apart from memqos's own: sums above pods once a minute,
zeroes there at every start, a container's values at its creation and at a resize.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from tests.fakes.agent import LEVELS, MI, container_paths, pod_path

MIN, LOW, HIGH, MAX = "memory.min", "memory.low", "memory.high", "memory.max"
KUBEPODS, BURSTABLE, _ = LEVELS
SYNC: Final = 60.0
"""Seconds between two counts of the pods; the first comes that long after the start."""
STARTING: Final = 4.0
"""Seconds from the start of the process until it answers."""
FACTOR: Final = 0.5

Policy = Literal["None", "TieredReservation", "HardReservation"]
Pod = Mapping[str, Any]
File = tuple[str, str]
Write = Callable[[str, str, str], None]


class Settings(NamedTuple):
    """What a kubelet is started with."""

    minor: int = 38
    gate: bool = True
    policy: Policy = "TieredReservation"

    @property
    def reserves_hard(self) -> bool:
        """Every request is in memory.min; before 1.36 there is nothing else."""
        return self.gate and (self.minor < 36 or self.policy == "HardReservation")

    @property
    def reserves_in_tiers(self) -> bool:
        return self.gate and self.minor >= 36 and self.policy == "TieredReservation"

    @property
    def configuration(self) -> str:
        """A KubeletConfiguration, as a file or /configz would have it."""
        lines = [
            "kind: KubeletConfiguration",
            "apiVersion: kubelet.config.k8s.io/v1beta1",
            f"featureGates: {{MemoryQoS: {str(self.gate).lower()}}}",
        ]
        if self.gate:
            lines.append(f"memoryThrottlingFactor: {FACTOR}")
        if self.gate and self.minor >= 36:
            lines.append(f"memoryReservationPolicy: {self.policy}")
        return "\n".join([*lines, ""])


TIERED: Final = Settings()


class ScriptedKubelet:
    """One kubelet of a node; `write` is how it puts a value into a file."""

    def __init__(self, write: Write, settings: Settings, now: float) -> None:
        self._write = write
        self.pods: dict[str, Pod] = {}
        self.start(settings, now)

    def start(self, settings: Settings, now: float) -> None:
        """Begin, or begin again: as another release, or configured otherwise, perhaps."""
        self.settings = settings
        self.answers_at = now + STARTING
        self.syncs_at = now + SYNC
        if settings.gate:
            for file in self.sums():
                self._write(*file, "0")
        elif settings.minor >= 36:
            for zeroed in ((KUBEPODS, MIN), (KUBEPODS, LOW), (BURSTABLE, LOW)):
                self._write(*zeroed, "0")

    def run(self, now: float) -> None:
        """Do what is due by now."""
        while self.syncs_at <= now:
            self.syncs_at += SYNC
            for file, amount in self.sums().items():
                self._write(*file, str(amount))

    def sums(self) -> dict[File, int]:
        """What it keeps above pods, whatever is there at the moment."""
        guaranteed = burstable = 0
        for pod in self.pods.values():
            if pod_path(pod).startswith(f"{BURSTABLE}/"):
                burstable += request_of(pod)
            else:
                guaranteed += request_of(pod)
        if self.settings.reserves_hard:
            sums = {(KUBEPODS, MIN): guaranteed + burstable, (BURSTABLE, MIN): burstable}
            return {file: amount for file, amount in sums.items() if amount}
        if not self.settings.gate:
            return {}
        if self.settings.policy == "None":
            guaranteed = burstable = 0
        sums = {(KUBEPODS, MIN): guaranteed + burstable, (BURSTABLE, LOW): burstable}
        if self.settings.minor >= 37:
            sums[KUBEPODS, LOW] = burstable
        return sums

    def create(self, pod: Pod) -> None:
        """The cgroups of a pod are there: it has the runtime set its containers' values."""
        self.pods[pod["metadata"]["uid"]] = pod
        for path in container_paths(pod):
            for file, value in self._values(pod).items():
                if value is not None:
                    self._write(path, file, value)

    def resize(self, pod: Pod) -> None:
        """An update over CRI; with the gate off 1.37 and later send memory.high=max."""
        self.create(pod)
        if not self.settings.gate and self.settings.minor >= 37:
            for path in container_paths(pod):
                self._write(path, HIGH, "max")

    def remove(self, pod: Pod) -> None:
        """The pod has gone; the sums follow at the next count."""
        self.pods.pop(pod["metadata"]["uid"], None)

    def _values(self, pod: Pod) -> dict[str, str | None]:
        request, limit = (_memory(pod, kind) for kind in ("requests", "limits"))
        values: dict[str, str | None] = {MAX: str(limit) if limit else None}
        if not self.settings.gate:
            return values
        if self.settings.reserves_hard:
            values[MIN] = str(request)
        elif self.settings.reserves_in_tiers:
            is_guaranteed = not pod_path(pod).startswith(f"{BURSTABLE}/")
            values[MIN] = str(request if is_guaranteed else 0)
            values[LOW] = str(0 if is_guaranteed else request)
        else:
            values |= {MIN: "0", LOW: "0"}
        if limit > request:
            values[HIGH] = str(int(request + FACTOR * (limit - request)) // 4096 * 4096)
        return values


def request_of(pod: Pod) -> int:
    """What all containers of a pod request together, in bytes."""
    return _memory(pod, "requests") * len(pod["spec"]["containers"])


def _memory(pod: Pod, kind: str) -> int:
    stanza = pod["spec"]["containers"][0]["resources"]
    return int(stanza.get(kind, {}).get("memory", "0Mi").removesuffix("Mi")) * MI
