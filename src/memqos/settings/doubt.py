"""Why a plan may be shown but not written: it follows from a guess."""

from typing import Final

from memqos.errors import MemqosError
from memqos.release import Release, default
from memqos.settings.facts import NodeFacts
from memqos.settings.settings import RunningKubelet, SettingsOptions

_NO_SOURCE: Final = "not found in a Node, /metrics or a process"


def doubt_of(
    facts: NodeFacts, options: SettingsOptions, kubelet: RunningKubelet | None
) -> str | None:
    """What is not known of the running kubelet, and the next step; None where all is.

    `kubelet` is what follows from the facts; None where it could not run with its configuration.
    """
    version, is_configured = facts.version, facts.configuration is not None
    is_from_kubelet = facts.configuration is not None and facts.configuration.is_from_kubelet
    if is_from_kubelet and kubelet is not None and kubelet.is_newer:
        # A kubelet that was just upgraded answers before its Node names the new version.
        return (
            f"the running kubelet reports a configuration that {version or options.release} does "
            "not support, so its version is another one – wait until its Node has that version, "
            "or set it"
        )
    unknown, ways_out = [], []
    if options.release is None and version is None:
        why = facts.why_version_unknown or _NO_SOURCE
        unknown.append(f"the version of the running kubelet is unknown ({why})")
        ways_out.append("--release")
    if not is_configured and version is not None:
        # What is stated of the gate is about memqos: the kubelet may keep the same files.
        unknown.append(
            "the running kubelet's configuration is unknown, and whether MemoryQoS is on"
        )
        ways_out.append("its file with --kubelet")
    elif not is_configured and "MemoryQoS" not in options.gates:
        whose = "its" if unknown else "the running kubelet's"
        unknown.append(f"{whose} configuration is unknown, and whether MemoryQoS is on")
        ways_out.append("--gate MemoryQoS=true or false, or its file with --kubelet")
    if unknown:
        return (
            f"{', and '.join(unknown)} – give {' and '.join(ways_out)}, or name a source that "
            f"has it: the cluster, or the kubelet's address"
        )
    if options.release is None or version is None:
        return None
    minor = _minor(version)
    if _minor(options.release) == minor:
        return None
    if minor is None or (is_configured and kubelet is None):
        return (
            f"the running kubelet is {version}, which memqos does not support or whose "
            f"configuration it cannot read, and the release is set to {options.release} – use "
            f"mode observe"
        )
    is_on = default("MemoryQoS", minor) if kubelet is None else kubelet.writes_levels
    if is_on:
        return (
            f"the running kubelet is {version} and has MemoryQoS on, but the release is set to "
            f"{options.release}: two rules for the same files – remove the release"
        )
    return None


def _minor(version: str) -> int | None:
    try:
        return Release.of(version).minor
    except MemqosError:
        return None
