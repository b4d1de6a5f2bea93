"""Where a node at an instant comes from besides this machine: a snapshot, records, agents."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from memqos.converge.node_plan import PlanOptions
from memqos.converge.observation import ObservedNode, observe_snapshot
from memqos.converge.observed_rows import observed_rows, plan_rows
from memqos.host.snapshots import load_snapshot
from memqos.kernel.file_formats import meminfo_of
from memqos.kube.pod_history import milliseconds
from memqos.monitor.instant import AvailableMemory, NodeInstant, PlaybackPosition, RowQuery
from memqos.monitor.playback import Playback
from memqos.record.recordings import Recording
from memqos.record.snapshot_story import snapshot_recordings
from memqos.settings.settings import PAGE_SIZE


class NodeSource(Protocol):
    """A node, or all nodes of a cluster, to be looked at again and again."""

    def read(self, visible: Collection[str], query: RowQuery) -> NodeInstant:
        """The node now: all of the visible rows, and of the others what orders them."""

    def recordings(self, pod: str | None = None) -> Sequence[Recording]:
        """What agents have recorded there; with `pod`, namespace/name, of that and of its node."""


class SnapshotNode:
    """The node of a snapshot, as it was."""

    def __init__(
        self,
        file: str,
        options: PlanOptions,
        adjust: Callable[[ObservedNode], ObservedNode] = lambda observed: observed,
    ) -> None:
        snapshot = load_snapshot(file)
        observation = adjust(observe_snapshot(snapshot, file))
        row_plan = plan_rows(observation, options)
        at = milliseconds(snapshot.taken_at) or 0
        rows = observed_rows(observation, row_plan, at, processes=tuple(snapshot.all_processes))
        faults = () if row_plan.fault is None else (row_plan.fault,)
        notes = (*observation.notes, *faults)
        if not rows and snapshot.running:
            notes = (*notes, "the snapshot has no memory usage of containers, so none is shown")
        self._recordings = list(snapshot_recordings(snapshot))
        self._instant = NodeInstant(
            origin=file,
            at=at,
            rows=rows,
            unmeasured=0 if rows else len(snapshot.running),
            memory=_memory_of(snapshot.meminfo or ""),
            enablement=None if row_plan.plan is None else str(row_plan.plan.enablement),
            planned=row_plan.planned,
            page_size=snapshot.page_size or PAGE_SIZE,
            notes=notes,
            faults=faults,
        )

    def read(self, visible: Collection[str], query: RowQuery) -> NodeInstant:
        """The same at every reading."""
        return self._instant

    def recordings(self, pod: str | None = None) -> Sequence[Recording]:
        """The records in the snapshot."""
        return self._recordings


SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class PlaybackNode:
    """Records played back at some speed."""

    def __init__(
        self,
        recordings: Sequence[Recording],
        origin: str,
        *,
        speed: float = 1.0,
        start: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._playback = Playback(recordings, origin)
        self._clock = clock
        self._speed = speed
        self._is_paused = False
        self._position = float(self._playback.since if start is None else start)
        self._moved_at = clock()

    def read(self, visible: Collection[str], query: RowQuery) -> NodeInstant:
        """The node where the playback is now."""
        self._move()
        played = self._playback
        position = PlaybackPosition(played.since, played.until, self._speed, self._is_paused)
        return played.instant(position, round(self._position))

    def recordings(self, pod: str | None = None) -> Sequence[Recording]:
        """All that is played."""
        return self._playback.recordings

    def seek(self, by: int) -> None:
        """Go forward or back by some milliseconds."""
        self._move()
        self._position = self._clamp(self._position + by)

    def seek_end(self) -> None:
        """Go to the last record."""
        self._position = float(self._playback.until)

    def change_speed(self, steps: int) -> None:
        """Play faster or slower."""
        self._move()
        nearest = min(range(len(SPEEDS)), key=lambda index: abs(SPEEDS[index] - self._speed))
        self._speed = SPEEDS[max(0, min(len(SPEEDS) - 1, nearest + steps))]

    def toggle_pause(self) -> None:
        """Stop where it is, or go on."""
        self._move()
        self._is_paused = not self._is_paused

    def _move(self) -> None:
        now = self._clock()
        if not self._is_paused:
            passed = (now - self._moved_at) * 1000 * self._speed
            self._position = self._clamp(self._position + passed)
        self._moved_at = now

    def _clamp(self, position: float) -> float:
        return min(max(position, self._playback.since), self._playback.until)


def _memory_of(text: str) -> AvailableMemory | None:
    meminfo = meminfo_of(text)
    if "MemTotal" not in meminfo:
        return None
    return AvailableMemory(meminfo["MemTotal"], meminfo.get("MemAvailable", 0))
