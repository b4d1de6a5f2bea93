"""How an agent stands: what it knows of itself beyond its core, shared by all who tell of it."""

from typing import Final

from memqos.agent.cluster_events import Announcer
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.kernel_counters import CgroupCounters
from memqos.agent.sampler import Sampler

STUCK_AFTER: Final = 60.0
"""Seconds without a pass after which something must be wrong."""


class AgentStatus:
    """Kept by the loop, read by metrics, health and state. Times are the clock's, or Unix's."""

    def __init__(
        self,
        core: Reconciler,
        version: str,
        now: float,
        unix: float,
        sampler: Sampler | None = None,
    ) -> None:
        self.core = core
        self.sampler = sampler
        self.version = version
        self.passed_at = now
        """When a pass last ended well."""
        self.is_complete = False
        """Whether the whole node has been looked at since the start."""
        self.resynced: float | None = None
        """Unix time of the last look at the whole node with all of its pods."""
        self.reloaded = unix
        """Unix time at which the configuration in force was read."""
        self.reload_fault: str | None = None
        """Why a newer configuration is not in force."""
        self.failing: str | None = None
        """Why a pass failed, until a resync of the whole node has succeeded."""
        self.journal_fault: str | None = None
        """Why the journal lacks what was done last."""
        self._failing_since = now
        self.counters: dict[str, CgroupCounters] = {}
        self.announcer: Announcer | None = None

    def fail(self, why: str, now: float) -> None:
        """Note that a pass failed."""
        if self.failing is None:
            self._failing_since = now
        self.failing = why

    def recover(self) -> None:
        """Note that a resync of the whole node has succeeded."""
        self.failing = None

    def health_problem(self, now: float) -> str | None:
        """Why the agent should be started anew; None where it should not."""
        silent = now - self.passed_at
        resyncs = 2 * self.core.configuration.resync
        # One that observes has nothing to do from one resync to the next.
        if silent > STUCK_AFTER + (0 if self.core.schedule.polls else resyncs):
            return f"no pass has ended well for {silent:.0f} s" + (
                f": {self.failing}" if self.failing else ""
            )
        failing = now - self._failing_since
        if self.failing is not None and failing > STUCK_AFTER + resyncs:
            return f"resync has failed for {failing:.0f} s: {self.failing}"
        return None

    def readiness_problem(self) -> str | None:
        """Why the agent does not do its work yet; None where it does."""
        doubt = self.core.planner.node_settings.doubt
        if doubt is not None and self.core.configuration.mode == "enforce":
            return f"nothing is written: {doubt}"
        if self.failing is not None:
            return self.failing
        if not self.is_complete:
            return "the node has not been looked at yet"
        unconfirmed = self.core.drift.unconfirmed_since
        if unconfirmed is not None and self.passed_at - unconfirmed > STUCK_AFTER:
            return "protection above pods waits for the kubelet to tell its configuration"
        return self.journal_fault
