"""The versions of kubelet and container runtime on this machine, and of memqos itself."""

import re
import shutil
from typing import Final, NamedTuple

_SECONDS: Final = 5


class _Program(NamedTuple):
    file: str
    answer: re.Pattern[str]


_RUNTIMES: Final = {
    "containerd": _Program("containerd", re.compile(r"^containerd \S+ v?(\d+\.\d+\S*)")),
    "cri-o": _Program("crio", re.compile(r"^crio version v?(\d+\.\d+\S*)")),
}
_KUBELET: Final = _Program("kubelet", re.compile(r"^Kubernetes (v\d+\.\d+\S*)"))


def runtime_version() -> str | None:
    """The container runtime on this machine, such as `containerd 1.6.20`.

    None where there is none on the PATH, or more than one: only the kubelet knows which it uses.
    """
    found = {name: _version(program) for name, program in _RUNTIMES.items()}
    known = [f"{name} {version}" for name, version in found.items() if version is not None]
    return known[0] if len(known) == 1 else None


def kubelet_version(file: str | None = None) -> str | None:
    """The version a kubelet's program prints; by default the one on PATH, running or not."""
    return _version(_KUBELET, file)


def own_version() -> str | None:
    """The version of memqos; None where it runs from its sources and is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("memqos")
    except PackageNotFoundError:
        return None


def _version(program: _Program, path: str | None = None) -> str | None:
    path = path or shutil.which(program.file)
    if path is None:
        return None
    import subprocess

    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = program.answer.match(done.stdout.decode("utf-8", "replace"))
    return None if found is None else found[1]
