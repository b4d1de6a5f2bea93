"""Why a plan may be shown but not written: what it rests on is a guess."""

from typing import TYPE_CHECKING, Final

from memqos.errors import MemqosError
from memqos.release import Release, default

if TYPE_CHECKING:
    from memqos.converge.settings import PlanOptions, RunningKubelet

_NO_SOURCE: Final = "neither a Node, nor /metrics, nor a process tells it"


def doubt_of(
    plan_options: "PlanOptions",
    version: str | None,
    kubelet: "RunningKubelet | None",
    *,
    is_configured: bool,
    is_from_kubelet: bool = False,
    why: str | None = None,
) -> str | None:
    """What is not known of the running kubelet, and the next step; None where all is.

    `version` is the running kubelet's own, `kubelet` what memqos makes of it and its configuration,
    which `is_told` by the kubelet itself.
    """
    if is_from_kubelet and kubelet is not None and kubelet.is_newer:
        # A kubelet that was just upgraded answers before its Node names the new version.
        return (
            "the running kubelet tells a configuration that "
            f"{version or plan_options.release} does not know, so it is of another version – wait "
            "until its Node names that, or state it"
        )
    unknown, options = [], []
    if plan_options.release is None and version is None:
        unknown.append(f"the version of the running kubelet is not known ({why or _NO_SOURCE})")
        options.append("--release")
    if not is_configured and version is not None:
        # What is stated of the gate is about memqos: the kubelet may keep the same files.
        unknown.append(
            "the running kubelet's configuration is not known, nor whether it has MemoryQoS on"
        )
        options.append("its file with --kubelet")
    elif not is_configured and "MemoryQoS" not in plan_options.gates:
        whose = "its" if unknown else "the running kubelet's"
        unknown.append(f"{whose} configuration is not known, nor whether its MemoryQoS is on")
        options.append("--gate MemoryQoS=true or false, or its file with --kubelet")
    if unknown:
        return (
            f"{', and '.join(unknown)} – give {' and '.join(options)}, or name a source that tells "
            "it: the cluster, or the kubelet's address"
        )
    if plan_options.release is None or version is None:
        return None
    minor = _minor(version)
    if _minor(plan_options.release) == minor:
        return None
    if minor is None or (is_configured and kubelet is None):
        return (
            f"the running kubelet is {version}, which memqos does not know or whose configuration "
            f"it cannot read, and the release is stated as {plan_options.release} – let "
            "memqos observe"
        )
    is_on = default("MemoryQoS", minor) if kubelet is None else kubelet.writes_levels
    if is_on:
        return (
            f"the running kubelet is {version} and has MemoryQoS on, but the release is stated as "
            f"{plan_options.release}: two rules for the same files – leave the release out"
        )
    return None


def _minor(version: str) -> int | None:
    try:
        return Release.of(version).minor
    except MemqosError:
        return None
