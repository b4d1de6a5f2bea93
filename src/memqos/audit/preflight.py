"""Whether nodes can honour Memory QoS: kernel, runtime, operating system, kubelet release."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from memqos.errors import UnsupportedRelease
from memqos.findings.machine import OLDEST_RUNTIMES
from memqos.kernel.machine import OLDEST_SAFE_KERNEL, version_numbers
from memqos.kube.node import Node, node_os
from memqos.release import Release, Since

_RUNTIME: Final = re.compile(r"([a-z-]+)://v?(\S+)")
_OLDER_KUBELETS: Final = Since({22: 2, 28: 3})
"""How many minor versions a kubelet may be older than its API server: kubernetes.io, version skew
policy."""
_FIRST_V2_IMAGES: Final[Mapping[str, tuple[int, int]]] = {
    "Ubuntu": (21, 10),
    "Debian GNU/Linux": (11, 0),
    "Fedora": (31, 0),
    "Red Hat Enterprise Linux": (9, 0),
    "CentOS": (9, 0),
    "Rocky Linux": (9, 0),
    "AlmaLinux": (9, 0),
    "Oracle Linux Server": (9, 0),
    "Amazon Linux": (2023, 0),
}
"""The first release of a distribution that boots with cgroup v2 by default:
kubernetes.io, About cgroup v2. Amazon Linux is not in that list: version 2 has cgroup v1."""


class NodeSystem(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of its software; None where it does not."""

    kubelet: str | None = None
    kernel: str | None = None
    runtime: str | None = None
    os: str | None = None
    image: str | None = None

    @property
    def kubelet_minor(self) -> int | None:
        try:
            return None if self.kubelet is None else Release.of(self.kubelet).minor
        except UnsupportedRelease:
            return None

    @property
    def is_linux(self) -> bool:
        return self.os in (None, "linux")


def node_system(node: Node) -> NodeSystem | None:
    """The software of a node; None where its status has no nodeInfo."""
    info = node.status.node_info
    if info is None:
        return None
    return NodeSystem(
        kubelet=info.kubelet_version,
        kernel=info.kernel_version,
        runtime=info.container_runtime_version,
        os=node_os(node),
        image=info.os_image,
    )


def old_kernel(system: NodeSystem) -> str | None:
    """The kernel, where it is too old for memory.high."""
    version = version_numbers(system.kernel) if system.is_linux else None
    return (
        f"kernel {system.kernel}" if version is not None and version < OLDEST_SAFE_KERNEL else None
    )


def old_runtime(system: NodeSystem) -> str | None:
    """The container runtime, where it does not pass cgroup v2 values on."""
    found = _RUNTIME.match(system.runtime or "") if system.is_linux else None
    if found is None:
        return None
    oldest, version = OLDEST_RUNTIMES.get(found[1]), version_numbers(found[2])
    if oldest is None or version is None or version >= oldest:
        return None
    return f"{found[1]} {found[2]}; {oldest[0]}.{oldest[1]} is the first that passes them on"


def image_with_cgroup_v1(system: NodeSystem) -> str | None:
    """The operating system, where it boots with cgroup v1 by default."""
    image = system.image or ""
    for name, first in _FIRST_V2_IMAGES.items():
        found = re.search(r"(\d+)(?:\.(\d+))?", image) if image.startswith(name) else None
        if found is not None and (int(found[1]), int(found[2] or 0)) < first:
            return image
    return None


class KubeletSkew(NamedTuple):
    """A kubelet of another release than the API server, or than the newest kubelet."""

    text: str
    is_supported: bool


def kubelet_skew(system: NodeSystem, newest: int, server: int | None) -> KubeletSkew | None:
    """How a kubelet's release differs; without an API server it is compared with the newest."""
    minor = system.kubelet_minor
    against = newest if server is None else server
    if minor is None or minor == against:
        return None
    whose = "the newest kubelet" if server is None else "the API server"
    text = f"kubelet {system.kubelet}, {whose} is 1.{against}"
    return KubeletSkew(text, 0 < against - minor <= _OLDER_KUBELETS.at(against))


def newest_minor(systems: Iterable[NodeSystem | None]) -> int:
    """The minor version of the newest kubelet; 0 where none is known."""
    return max(_minors(systems), default=0)


def _minors(systems: Iterable[NodeSystem | None]) -> Iterator[int]:
    for system in systems:
        minor = None if system is None else system.kubelet_minor
        if minor is not None:
            yield minor
