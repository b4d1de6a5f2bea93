"""Kubernetes releases: versions, feature gates, and a rule's table over both. Pure: no I/O."""

from memqos.release.gates import GateStage, GateState, default, dependencies, gate_state, stage
from memqos.release.releases import DEFAULT_MINOR, NEWEST, OLDEST, Release
from memqos.release.since import Since

__all__ = [
    "DEFAULT_MINOR",
    "NEWEST",
    "OLDEST",
    "GateStage",
    "GateState",
    "Release",
    "Since",
    "default",
    "dependencies",
    "gate_state",
    "stage",
]
