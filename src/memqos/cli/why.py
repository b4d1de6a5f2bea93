"""`memqos why`: what happened to a container's memory, the rule that decided, what prevents it."""

import os
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Literal

import click
import msgspec

from memqos.cli.cluster_access import LiveCluster, cluster_options
from memqos.cli.output import complain, emit, print_lines
from memqos.draw.text.story import story_data, story_text
from memqos.errors import InputError, MemqosError
from memqos.host.record_files import RECORDS_FOLDER, read_recordings
from memqos.record.format import Subject
from memqos.record.recordings import Recording, latest_recordings
from memqos.record.story import story_of, unknown_plan

if TYPE_CHECKING:
    from memqos.kube.pod import Pod
    from memqos.manifests.snapshot import Snapshot
    from memqos.plan.setting import FileSettings
    from memqos.record.chapters import Story
    from memqos.record.cluster_story import ClusterReport
    from memqos.record.snapshot_story import SnapshotStory
    from memqos.record.story import PlanLookup


def read_pod_history(live: LiveCluster, name: str) -> "ClusterReport":
    """The pod and the events about it; a right that is missing for one of them is a note."""
    from memqos.host.apiserver.api_errors import ApiError
    from memqos.host.apiserver.pager import get_object, list_objects
    from memqos.host.apiserver.resources import ApiResource, Selection
    from memqos.kube.pod_history import KubeEvent, PastPod
    from memqos.record.cluster_story import ClusterReport

    server, namespace = live.server, live.namespace
    faults: list[MemqosError] = []
    pod, events = None, list[KubeEvent]()
    try:
        pod = get_object(server, ApiResource("", "v1", "pods", PastPod), name, namespace)
    except ApiError as error:
        faults.append(error)
    try:
        about = Selection(namespace, fields=f"involvedObject.name={name},involvedObject.kind=Pod")
        events = list_objects(server, ApiResource("", "v1", "events", KubeEvent), about).items
    except ApiError as error:
        faults.append(error)
    if len(faults) == 2:
        raise faults[0]
    if pod is None and not events and not faults:
        raise InputError(
            f"there is no pod {name} in namespace {namespace}, and no event about one",
            file=server.where,
            hint="is -n the pod's namespace? Events are kept for an hour",
        )
    return ClusterReport(server.where, pod, events, tuple(faults))


@click.command()
@click.argument("pod", metavar="pod/NAME")
@click.argument("container", required=False)
@cluster_options("context", "namespace")
@click.option(
    "--records",
    metavar="DIR",
    help=f"Where an agent keeps, or kept, its records.  [default: {RECORDS_FOLDER}]",
)
@click.option("--snapshot", metavar="FILE", help="Ask a snapshot, not the records of an agent.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml", "svg"]),
    default="text",
    help="What to print.  [default: text]",
)
def command(
    pod: str,
    container: str | None,
    context: str | None,
    namespace: str | None,
    records: str | None,
    snapshot: str | None,
    output: Literal["text", "json", "yaml", "svg"],
) -> int:
    """Tell why a container was throttled, killed or evicted.

    Out of an agent's records here, and of what a live cluster tells of the pod: its status, and
    the events about it. The cluster is asked with --context, or with -n where --records is not
    given.

    \b
    memqos why pod/api-1 -n shop                  all its containers
    memqos why pod/api-1 app -n shop -o svg       one of them, drawn
    """
    name = pod.removeprefix("pod/").removeprefix("pods/")
    live = LiveCluster(context, namespace)
    if snapshot is not None and context is not None:
        raise click.UsageError("--context is for a live cluster, and --snapshot for a file")
    reads_cluster = context is not None or (
        namespace is not None and records is None and snapshot is None
    )
    where = live.namespace if context is not None else namespace or "default"
    if snapshot is not None:
        of_snapshot = _stories_of_snapshot(snapshot, where, name)
        if output == "svg" and not any(each.has_records for each in of_snapshot):
            raise InputError(
                "a snapshot without records is one look, and a timeline takes two", file=snapshot
            )
        recordings = [each.recording for each in of_snapshot]
        stories = [each.story for each in of_snapshot]
    else:
        report = (
            _read_cluster_history(live, name, is_named=context is not None)
            if reads_cluster
            else None
        )
        planned = unknown_plan if report is None else _plan_of_live_pod(live, name)
        recordings, stories = _stories_of_records(records, where, name, report, planned)
    stories = _select_container(stories, container)
    if output == "svg":
        from memqos.draw.svg.timeline import timeline_svg
        from memqos.draw.svg.timeline_data import timeline_of

        by_name = {each.who.container: each for each in recordings}
        if not by_name and not any(story.chapters for story in stories):
            raise InputError(
                f"there is nothing to draw of pod {where}/{name}: nothing was recorded, and "
                "nothing happened",
                hint="memqos agent records; without -o svg the pod is described",
            )
        drawn = [timeline_of(_recording(by_name, story), story) for story in stories]
        print(timeline_svg(drawn))
    else:
        _print_stories(stories, output)
    return 0


def _print_stories(stories: "list[Story]", output: Literal["text", "json", "yaml"]) -> None:
    if output == "text":
        for index, story in enumerate(stories):
            print_lines([*([""] if index else ()), *story_text(story)])
    else:
        emit({"containers": [story_data(story) for story in stories]}, output)


def _stories_of_records(
    records: str | None,
    namespace: str,
    pod: str,
    report: "ClusterReport | None",
    planned: "PlanLookup",
) -> "tuple[list[Recording], list[Story]]":
    """What an agent has recorded here, and its stories with what the cluster reports."""
    try:
        recordings, node = _read_recordings(records or RECORDS_FOLDER, namespace, pod)
    except InputError as error:
        if report is None or records is not None:
            raise
        if os.path.isdir(RECORDS_FOLDER):
            complain(f"note: {RECORDS_FOLDER}: {error.what}")
        recordings, node = [], None
    stories = [story_of(recording, node, planned) for recording in recordings]
    if report is not None:
        stories = _with_cluster(stories, recordings, report, namespace, pod)
    return recordings, stories


def _read_recordings(
    folder: str, namespace: str, pod: str
) -> tuple[list[Recording], Recording | None]:
    if not os.path.isdir(folder):
        raise InputError(
            "there are no records here",
            file=folder,
            hint="memqos agent keeps them; --records says where, and -n asks the cluster",
        )
    try:
        recordings = list(read_recordings(folder))
    except PermissionError:
        raise InputError("not yours to read", file=folder, hint="run as root") from None
    node = next((each for each in recordings if each.who.is_node), None)
    pods = [each for each in recordings if not each.who.is_node]
    named = [each for each in pods if (each.who.namespace, each.who.pod) == (namespace, pod)]
    if not named:
        names = {f"{each.who.namespace}/{each.who.pod}" for each in pods}
        raise _unknown_pod_error(f"{namespace}/{pod}", names, folder)
    pods_of_name = len({each.who.uid for each in named})
    if pods_of_name > 1:
        complain(f"note: {pods_of_name} pods had this name: this is the last of them")
    return latest_recordings(named), node


def _read_cluster_history(
    live: LiveCluster, name: str, *, is_named: bool
) -> "ClusterReport | None":
    """What the cluster reports; where it fails, records are enough unless it was named."""
    try:
        return read_pod_history(live, name)
    except MemqosError as error:
        if is_named or not os.path.isdir(RECORDS_FOLDER):
            raise
        complain(error, "note: the cluster tells nothing: ")
        return None


def _with_cluster(
    stories: "list[Story]",
    recordings: list[Recording],
    report: "ClusterReport",
    namespace: str,
    pod: str,
) -> "list[Story]":
    from memqos.record.cluster_story import add_cluster_report

    uid = recordings[0].who.uid if recordings else None
    if uid is not None and uid not in report.uids(uid):
        complain("note: the records here are of an earlier pod of this name: --records tells them")
        stories, recordings[:] = [], []
    return add_cluster_report(stories, report, namespace, pod, uid)


def _recording(by_name: dict[str, Recording], story: "Story") -> Recording:
    """What is drawn of a container: without a recording, what happened and no lines."""
    who = Subject(0, story.namespace, story.pod, "", story.container, story.qos)
    return by_name.get(story.container) or Recording(who, ())


def _select_container(stories: "list[Story]", container: str | None) -> "list[Story]":
    if container is None:
        return stories
    chosen = [each for each in stories if each.container == container]
    if not chosen:
        names = ", ".join(each.container for each in stories)
        raise InputError(f"the pod has no container {container}", hint=f"it has {names}")
    return chosen


def _stories_of_snapshot(file: str, namespace: str, pod: str) -> "list[SnapshotStory]":
    from memqos.host.snapshots import load_snapshot, snapshot_cgroup_names
    from memqos.plan.tree import pod_key
    from memqos.record.snapshot_story import snapshot_recordings, snapshot_stories

    snapshot = load_snapshot(file)
    names = snapshot_cgroup_names(snapshot, file)
    planned = _plan_of_snapshot(snapshot, file, namespace, pod)
    stories = snapshot_stories(snapshot, names, namespace, pod, planned)
    if not stories:
        pods = set(map(pod_key, snapshot.running))
        recorded = [each.who for each in snapshot_recordings(snapshot) if not each.who.is_node]
        pods |= {f"{who.namespace}/{who.pod}" for who in recorded}
        raise _unknown_pod_error(f"{namespace}/{pod}", pods, file)
    return stories


def _plan_of_live_pod(live: LiveCluster, name: str) -> "PlanLookup":
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
            complain(f"note: the plan of the pod is not known: {error}")
            return {}

    return lambda container: containers().get(container)


def _plan_of_snapshot(snapshot: "Snapshot", file: str, namespace: str, pod: str) -> "PlanLookup":
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
            complain(error, "note: the plan of the pod is not known: ")
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
        # A memory.high that throttles was written by somebody: where nothing turns the gate off by
        # name, the rule is the one that holds while it is on.
        arguments = msgspec.structs.replace(arguments, gates={MEMORY_QOS: True})
        resolved = resolve_settings(arguments, live=live)
    plan = semantics(pod, resolved.settings).plan
    if plan is None:
        return {}
    names = [container.name for container in containers_of(pod)]
    return {name: each.settings for name, each in zip(names, plan.containers, strict=True)}


def _unknown_pod_error(pod: str, names: set[str], file: str) -> InputError:
    close = get_close_matches(pod, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "is -n the pod's namespace?"
    return InputError(f"nothing is known of pod {pod}", file=file, hint=hint)
