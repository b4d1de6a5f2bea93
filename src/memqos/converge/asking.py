"""What a kubelet says of itself: its version, its configuration, its memory QoS metrics."""

import re
from typing import Final

import msgspec

from memqos.converge.observing import Configuration
from memqos.errors import MemqosError
from memqos.host.kubelet import KubeletEndpoint

_MEMORY_QOS: Final = "kubelet_memory_qos_"
_BUILD: Final = re.compile(r'^kubernetes_build_info\{[^}]*\bgit_version="([^"]+)"', re.MULTILINE)


class Told(msgspec.Struct, frozen=True):
    """What it said, and why it did not say the rest."""

    version: str | None = None
    metrics: tuple[str, ...] = ()
    configuration: Configuration | None = None
    notes: tuple[str, ...] = ()


class _Configz(msgspec.Struct, frozen=True):
    kubeletconfig: msgspec.Raw


def ask(endpoint: KubeletEndpoint) -> Told:
    """Ask for all of it; a kubelet may answer one and refuse another.

    On its read-only port it tells nothing of its configuration.
    """
    notes: list[str] = []
    metrics = (_answer(endpoint, "/metrics", notes) or b"").decode("utf-8", "replace")
    build = _BUILD.search(metrics)
    return Told(
        version=None if build is None else build[1],
        metrics=tuple(line for line in metrics.splitlines() if line.startswith(_MEMORY_QOS)),
        configuration=configuration_of(endpoint, notes) if endpoint.is_secure else None,
        notes=tuple(notes),
    )


def configuration_of(endpoint: KubeletEndpoint, notes: list[str]) -> Configuration | None:
    """The configuration in force, as the kubelet tells it; why not goes to the notes."""
    answer = _answer(endpoint, "/configz", notes)
    if answer is None:
        return None
    try:
        found = msgspec.json.decode(answer, type=_Configz).kubeletconfig
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        notes.append(f"{endpoint.url}/configz: the answer holds no configuration")
        return None
    return Configuration(f"{endpoint.url}/configz", bytes(found))


def _answer(endpoint: KubeletEndpoint, path: str, notes: list[str]) -> bytes | None:
    try:
        return endpoint.get(path)
    except MemqosError as error:
        notes.append(str(error))
        return None
