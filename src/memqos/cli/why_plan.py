"""What is planned for a pod's containers, for a `why` whose rules are not recorded."""

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from memqos.cli.cluster_access import LiveCluster
from memqos.cli.output import complain
from memqos.errors import MemqosError

if TYPE_CHECKING:
    from memqos.kube.pod import Pod
    from memqos.manifests.snapshot import Snapshot
    from memqos.plan.setting import FileSettings
    from memqos.record.story import PlanLookup


def plan_of_live_pod(live: LiveCluster, name: str) -> "PlanLookup":
    """What the pod's node plans for its containers, as `explain` shows it; read when needed."""

    @cache
    def containers() -> "dict[str, FileSettings]":
        from memqos.kube.pod import Pod

        path = f"pod/{name}"
        node = live.node_path_of((path,))
        if node is None:
            return {}
        try:
            pod = msgspec.json.decode(live.get(path), type=Pod)
            return _planned_containers(pod, live=live, node=node)
        except (MemqosError, msgspec.DecodeError) as error:
            complain(f"note: the plan of the pod is unknown: {error}")
            return {}

    return lambda container: containers().get(container)


def plan_of_snapshot(snapshot: "Snapshot", file: str, namespace: str, pod: str) -> "PlanLookup":
    """The same of a pod in a snapshot; for what an agent of memqos manages, the agent's plan."""

    @cache
    def containers() -> "dict[str, FileSettings]":
        from memqos.converge.observation import with_agent_plan
        from memqos.plan.tree import Tree, pod_key

        found: dict[str, FileSettings] = {}
        managed, key = Tree({}), f"{namespace}/{pod}"
        try:
            for each in snapshot.running:
                # Without the kubelet's version the release would be a guess.
                if pod_key(each) == key and snapshot.kubelet:
                    found = _planned_containers(each, snapshot=file)
            if snapshot.agent is not None:
                managed = with_agent_plan(managed, snapshot.agent)
        except MemqosError as error:
            complain(error, "note: the plan of the pod is unknown: ")
            return {}
        for cgroup in managed.cgroups.values():
            if cgroup.pod == key and cgroup.container is not None:
                found[cgroup.container] = found.get(cgroup.container, {}) | cgroup.settings
        return found

    return lambda container: containers().get(container)


def _planned_containers(
    pod: "Pod",
    *,
    live: LiveCluster | None = None,
    node: str | None = None,
    snapshot: str | None = None,
) -> "dict[str, FileSettings]":
    """Container → its planned settings on the node that is named."""
    from memqos.cli.settings import SettingsArguments, resolve_settings
    from memqos.kube.shape import containers_of
    from memqos.plan.semantics import semantics
    from memqos.settings.enablement import MEMORY_QOS

    arguments = SettingsArguments(node=node, snapshot=snapshot)
    resolved = resolve_settings(arguments, live=live)
    if resolved.enablement.source == "release default":
        # Something has written a memory.high that throttles: where nothing turns the gate off by
        # name, the rule is the one that holds while it is on.
        arguments = msgspec.structs.replace(arguments, gates={MEMORY_QOS: True})
        resolved = resolve_settings(arguments, live=live)
    plan = semantics(pod, resolved.settings).plan
    if plan is None:
        return {}
    names = [container.name for container in containers_of(pod)]
    return {name: each.settings for name, each in zip(names, plan.containers, strict=True)}
