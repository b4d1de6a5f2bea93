"""How an agent stands: what it knows of itself beyond its core, shared by all who tell of it."""

from typing import Final

from memqos.agent.announcing import Announcer
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.sampling import Sample
from memqos.agent.witness import Witness

STUCK_AFTER: Final = 60.0
"""Seconds without a pass after which something must be wrong."""


class Status:
    """Kept by the loop, read by metrics, health and state. Times are the clock's, or Unix's."""

    def __init__(
        self,
        core: Reconciler,
        version: str,
        now: float,
        unix: float,
        witness: Witness | None = None,
    ) -> None:
        self.core = core
        self.witness = witness
        self.version = version
        self.passed_at = now
        """When a pass last ended well."""
        self.is_complete = False
        """Whether the whole node has been looked at since the start."""
        self.resynced: float | None = None
        """Unix time of the last look at the whole node with all of its pods."""
        self.reloaded = unix
        """Unix time at which the configuration in force was read."""
        self.reload_refused: str | None = None
        """Why a newer configuration is not in force."""
        self.failing: str | None = None
        """Why the last pass did not end well."""
        self.samples: dict[str, Sample] = {}
        self.announcer: Announcer | None = None

    def healthy(self, now: float) -> str | None:
        """Why the agent should be started anew; None where it should not."""
        silent = now - self.passed_at
        # One that observes has nothing to do from one resync to the next.
        idle = 0 if self.core.schedule.polls else 2 * self.core.configuration.resync
        limit = STUCK_AFTER + idle
        if silent <= limit:
            return None
        return f"no pass has ended well for {silent:.0f} s" + (
            f": {self.failing}" if self.failing else ""
        )

    def ready(self) -> str | None:
        """Why the agent does not do its work yet; None where it does."""
        doubt = self.core.desires.ground.doubt
        if doubt is not None and self.core.configuration.mode == "enforce":
            return f"nothing is written: {doubt}"
        if self.is_complete:
            return None
        return self.failing or "the node has not been looked at yet"
