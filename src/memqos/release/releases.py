"""A Kubernetes release as a value: its minor version and the feature gates that are on."""

import re
from collections.abc import Mapping

import msgspec

from memqos.errors import UnsupportedRelease
from memqos.release._gate_facts import HISTORY
from memqos.release.gates import canonical, enabled_gates, settable

OLDEST = 22
NEWEST = 38
DEFAULT_MINOR = 36

# Distributions append to the patch: v1.29.3-eks-ae9a62a, v1.28.5+k3s1.
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.\d+(?:[-+].+)?)?", re.ASCII)


class Release(msgspec.Struct, frozen=True):
    """A release and the gates set on it; built by `Release.of`, once, and passed along."""

    minor: int
    gates: tuple[tuple[str, bool], ...]
    on: frozenset[str]

    @classmethod
    def of(
        cls, version: str | int = DEFAULT_MINOR, gates: Mapping[str, bool] | None = None
    ) -> "Release":
        """The release of a version such as "1.36", "v1.36.4" or 36, with these gates set."""
        minor = _check_minor(version)
        overrides = {settable(name, on, minor): on for name, on in (gates or {}).items()}
        settings = tuple(sorted(overrides.items()))
        return cls(minor, settings, enabled_gates(minor, settings))

    def with_gates(self, gates: Mapping[str, bool]) -> "Release":
        """The same release with these gates set as well."""
        return Release.of(self.minor, {**dict(self.gates), **gates})

    def is_enabled(self, name: str) -> bool:
        return name in self.on or (name not in HISTORY and canonical(name) in self.on)

    def __str__(self) -> str:
        return f"1.{self.minor}"

    def __repr__(self) -> str:
        return f"Release.of({str(self)!r}, {dict(self.gates)})"


def _check_minor(version: str | int) -> int:
    major, minor = (1, version) if isinstance(version, int) else _parse(version)
    if (major, minor) < (1, OLDEST):
        raise UnsupportedRelease(
            f"Kubernetes {major}.{minor} is older than any release that memqos supports",
            hint=f"the oldest is 1.{OLDEST}",
        )
    if (major, minor) > (1, NEWEST):
        raise UnsupportedRelease(
            f"Kubernetes {major}.{minor} is newer than any release that memqos supports",
            hint=f"the newest is 1.{NEWEST}: use that one, or upgrade memqos",
        )
    return minor


def _parse(version: str) -> tuple[int, int]:
    match = _VERSION.fullmatch(version)
    if match is None:
        raise UnsupportedRelease(
            f"{version!r} is not a Kubernetes version", hint='write it like "1.36" or "v1.36.4"'
        )
    return int(match[1]), int(match[2])
