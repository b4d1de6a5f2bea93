"""Discover the owners of this machine's cgroups: systemd's bus, and the runtimes' sockets."""

import os
import re
import socket
import stat
from typing import Final

import msgspec

from memqos.errors import Unreachable
from memqos.findings.facts import NriFacts
from memqos.host.systemd_dropins import SYSTEMD_RUN
from memqos.host.unix_peers import connected_processes
from memqos.kernel.machine import NRI_SOCKET
from memqos.plan.names import RuntimeName

_BUS: Final = "/run/dbus/system_bus_socket"
_ADDRESS: Final = re.compile(r"unix:path=([^,;]+)")
SOCKETS: Final[dict[RuntimeName, tuple[str, ...]]] = {
    "containerd": (
        "/run/containerd/containerd.sock",
        "/run/k3s/containerd/containerd.sock",
    ),
    "cri-o": ("/run/crio/crio.sock",),
}
_NRI_PLUGINS: Final = "/opt/nri/plugins"
_MOUNTS: Final = "/proc/self/mountinfo"
_CONNECT_SECONDS: Final = 2.0


class OwnerEndpoints(msgspec.Struct, frozen=True):
    """The owners of this machine's cgroups that answer."""

    is_copy: bool = False
    """Whether the tree is a copy, not a cgroup file system: then it has no owners."""
    is_direct: bool = False
    """Whether values are to be written directly, bypassing their owners."""
    systemd: str | None = None
    """systemd's runtime directory, where it is the init."""
    bus: str | None = None
    """The socket of the system bus."""
    sockets: dict[RuntimeName, str] = {}
    """The sockets of container runtimes."""
    has_nri: bool = False
    """Whether the agent of this machine is connected to its runtime as an NRI plugin."""


def discover_owners(
    root: str, cri_socket: str | None = None, *, direct: bool = False
) -> OwnerEndpoints:
    """Find the owners that answer; with `cri_socket`, that one has to."""
    is_copy = not _is_cgroup2(root)
    if is_copy or direct:
        return OwnerEndpoints(is_copy=is_copy, is_direct=direct)
    # sd_booted(3): this folder is there only where systemd is the init.
    systemd = SYSTEMD_RUN if os.path.isdir(f"{SYSTEMD_RUN}/system") else None
    named = _ADDRESS.search(os.environ.get("DBUS_SYSTEM_BUS_ADDRESS", ""))
    bus = named[1] if named else _BUS
    return OwnerEndpoints(
        systemd=systemd,
        bus=bus if systemd is not None and _accepts_connections(bus) else None,
        sockets=_sockets() if cri_socket is None else _check_socket(cri_socket),
    )


def read_nri(path: str = NRI_SOCKET) -> NriFacts | None:
    """The runtime's NRI socket as it is; None where only root may look at it."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        folder_mode = stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return NriFacts(socket=path)
    except OSError:
        return None
    return NriFacts(
        socket=path,
        mode=mode,
        folder_mode=folder_mode,
        plugins=connected_processes(path),
        installed=_installed_plugins(),
    )


def _installed_plugins() -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(_NRI_PLUGINS)))
    except OSError:
        return ()


def _sockets() -> dict[RuntimeName, str]:
    found: dict[RuntimeName, str] = {}
    for runtime, paths in SOCKETS.items():
        socket_path = next(filter(_accepts_connections, paths), None)
        if socket_path is not None:
            found[runtime] = socket_path
    return found


def _check_socket(path: str) -> dict[RuntimeName, str]:
    path = path.removeprefix("unix://")
    if not _accepts_connections(path):
        raise Unreachable(
            f"{path}: no container runtime answers here",
            hint="give its socket with --cri-socket, such as /run/containerd/containerd.sock",
        )
    return dict.fromkeys(SOCKETS, path)


def _accepts_connections(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_CONNECT_SECONDS)
        try:
            client.connect(path)
        except OSError:
            return False
    return True


def _is_cgroup2(root: str) -> bool:
    """Whether a folder is on a cgroup2 file system, wherever that is mounted."""
    try:
        device = os.stat(root).st_dev
        with open(_MOUNTS, encoding="utf-8", errors="replace") as mounts:
            lines = [line.split() for line in mounts]
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(line[2] == number and "cgroup2" in line for line in lines)
