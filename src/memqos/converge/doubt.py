"""Why a plan may be shown but not written: what it rests on is a guess."""

from typing import TYPE_CHECKING, Final

from memqos.errors import MemqosError
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.converge.planning import RunningKubelet, Wanted

_NOBODY_TELLS: Final = "neither a Node, nor /metrics, nor a process tells it"
_SOURCES: Final = "name a source that tells it: the cluster, or the kubelet's address"


def doubt_of(
    wanted: "Wanted",
    version: str | None,
    kubelet: "RunningKubelet | None",
    *,
    is_configured: bool,
    why: str | None = None,
) -> str | None:
    """What is not known of the running kubelet, and the next step; None where all is.

    `version` is the running kubelet's own, `kubelet` what memqos makes of it and its configuration.
    """
    if wanted.release is None and version is None:
        return (
            f"the version of the running kubelet is not known ({why or _NOBODY_TELLS}) – state it "
            f"with --release, or {_SOURCES}"
        )
    if not is_configured and "MemoryQoS" not in wanted.gates:
        return (
            "the configuration of the running kubelet is not known, nor whether MemoryQoS is on – "
            f"state the gate with --gate MemoryQoS=true or false, name the kubelet's file, or "
            f"{_SOURCES}"
        )
    if wanted.release is None or version is None or not is_configured:
        return None
    if _minor(wanted.release) == _minor(version):
        return None
    if kubelet is None:
        return (
            f"the running kubelet is {version}, which memqos does not know or whose configuration "
            f"it cannot read, and the release is stated as {wanted.release} – let memqos observe"
        )
    if kubelet.release.enabled("MemoryQoS"):
        return (
            f"the running kubelet is {version} and has MemoryQoS on, but the release is stated as "
            f"{wanted.release}: two rules for the same files – leave --release out"
        )
    return None


def _minor(version: str) -> int | None:
    try:
        return Release.of(version).minor
    except MemqosError:
        return None
