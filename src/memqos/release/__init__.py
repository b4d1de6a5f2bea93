"""Kubernetes releases: versions, feature gates, and a rule's table over both. Pure: no I/O."""

from memqos.release.gates import Stage, State, default, dependencies, stage, state
from memqos.release.releases import DEFAULT_MINOR, NEWEST, OLDEST, Release
from memqos.release.since import Since

__all__ = [
    "DEFAULT_MINOR",
    "NEWEST",
    "OLDEST",
    "Release",
    "Since",
    "Stage",
    "State",
    "default",
    "dependencies",
    "stage",
    "state",
]
