"""`memqos why`: what happened to a container's memory, the rule that decided, what prevents it."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import click
import msgspec

from memqos.cli.agent_access import AgentAccessOptions, agent_access_options, agent_endpoints
from memqos.cli.browser import open_option, open_page, require_page
from memqos.cli.cluster_access import LiveCluster, cluster_options
from memqos.cli.help_sections import SectionedCommand
from memqos.cli.options import collect_options
from memqos.cli.output import complain, emit, print_lines, print_markup
from memqos.cli.why_files import (
    read_folder,
    read_pod_recordings,
    read_snapshot_deaths,
    snapshot_pod_stories,
)
from memqos.cli.why_plan import plan_of_live_pod
from memqos.draw.text.story import story_data, story_text
from memqos.errors import InputError, MemqosError
from memqos.host.record_files import RECORDS_FOLDER, read_recordings
from memqos.record.format import Subject
from memqos.record.recordings import Recording, latest_recordings
from memqos.record.story import story_of, unknown_plan

if TYPE_CHECKING:
    from memqos.record.chapters import Story
    from memqos.record.cluster_story import ClusterReport
    from memqos.record.recent_deaths import Death
    from memqos.record.story import PlanLookup
    from memqos.record.usage import UsageMoment


MOST_PODS: Final = 5
"""Pods of a workload whose stories are printed."""
_OUTPUTS: Final = ("text", "json", "yaml", "svg")
StoryOutput = Literal["text", "json", "yaml", "svg"]


class WhyResult(NamedTuple):
    """The stories of a pod's containers, and what they were made of."""

    stories: "list[Story]"
    recordings: "Sequence[Recording]" = ()
    files: Mapping[str, Mapping[str, str]] = {}
    """Container that runs → its cgroup files now."""


@click.command(cls=SectionedCommand)
@click.argument("target", metavar="[POD | KIND/NAME]", required=False)
@click.argument("container", required=False)
@cluster_options("context", "namespace")
@agent_access_options
@click.option(
    "--records",
    metavar="DIR",
    help=f"The records folder of an agent.  [default: {RECORDS_FOLDER}]",
)
@click.option(
    "--snapshot", metavar="FILE", help="Read a snapshot instead of the records of an agent."
)
@click.option(
    "--readings",
    is_flag=True,
    help="Show every memory reading (usage, working set, RSS, …) and its formula.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(_OUTPUTS),
    default="text",
    help="Output format.  [default: text]",
)
@open_option
@collect_options(AgentAccessOptions)
def command(
    access: AgentAccessOptions,
    *,
    target: str | None,
    container: str | None,
    context: str | None,
    namespace: str | None,
    records: str | None,
    snapshot: str | None,
    readings: bool,
    output: StoryOutput,
    opens: bool,
) -> int:
    """Show why a container was throttled, OOM-killed or evicted.

    It reads from the cluster of the current context: the pod's status, its Events, and the records
    of the agent on its node, which needs the right to get the pod. Without a name it lists recent
    deaths of containers in the namespace. --records and --snapshot read files instead, of all
    namespaces if neither pod nor namespace is named.

    \b
    memqos why                                    recent deaths in this namespace
    memqos why pod/api-1 -n shop                  all its containers
    memqos why deployment/api --readings          its pods, all memory readings
    memqos why pod/api-1 app -n shop -o svg       one container, drawn
    """
    if opens:
        require_page(output, "text", "svg")
        output = "svg"
    _check_combination(target, output, context, snapshot)
    live = LiveCluster(context, namespace)
    is_file = snapshot is not None or (records is not None and context is None)
    if target is None:
        if is_file:
            return _print_recorded_deaths(snapshot, records or RECORDS_FOLDER, namespace, output)
        return _print_recent_deaths(live, access, output)
    is_pod = live.kind_of(target) in (None, "pod")
    if not is_pod and is_file:
        raise click.UsageError(f"{target} needs a live cluster: name a pod")
    name = target.partition("/")[2] or target
    if snapshot is not None:
        results = [_result_of_snapshot(snapshot, namespace or "default", name, output)]
    elif is_file:
        results = [_result_of_records(records, namespace or "default", name, None)]
    elif is_pod:
        results = [_result_of_cluster(live, name, records, access, is_named=context is not None)]
    else:
        results = _results_of_workload(live, target, records, access)
    results = [
        each._replace(stories=_select_container(each.stories, container)) for each in results
    ]
    if output == "svg":
        _show_timeline(results, opens=opens)
    else:
        _print_stories(results, output, readings=readings)
    return 0


def _check_combination(
    target: str | None, output: StoryOutput, context: str | None, snapshot: str | None
) -> None:
    if snapshot is not None and context is not None:
        raise click.UsageError("--context is for a live cluster, and --snapshot for a file")
    if target is None and output == "svg":
        raise click.UsageError("a timeline shows one pod: name a pod")


def _print_recent_deaths(live: LiveCluster, access: AgentAccessOptions, output: StoryOutput) -> int:
    from memqos.cli.why_cluster import read_recent_deaths

    deaths = read_recent_deaths(live, agent_endpoints(live, access))
    return _print_deaths(deaths, live.namespace, output, "statuses and events")


def _print_recorded_deaths(
    snapshot: str | None, folder: str, namespace: str | None, output: StoryOutput
) -> int:
    from memqos.record.recent_deaths import recorded_deaths

    if snapshot is None:
        deaths = recorded_deaths(read_folder(folder), namespace)
        return _print_deaths(deaths, namespace, output, "the records", f" --records {folder}")
    deaths = read_snapshot_deaths(snapshot, namespace)
    evidence = "statuses and records in the snapshot"
    return _print_deaths(deaths, namespace, output, evidence, f" --snapshot {snapshot}")


def _print_deaths(
    deaths: "Sequence[Death]",
    namespace: str | None,
    output: StoryOutput,
    evidence: str,
    options: str = "",
) -> int:
    from memqos.draw.text.usage import deaths_data, deaths_text

    if output == "text":
        print_lines(deaths_text(deaths, namespace, evidence, options))
    else:
        assert output != "svg"  # refused with the options
        emit({"namespace": namespace, "deaths": deaths_data(deaths)}, output)
    return 0


def _results_of_workload(
    live: LiveCluster, path: str, records: str | None, access: AgentAccessOptions
) -> list[WhyResult]:
    """Those of a workload's pods that have died, the latest first; of all where none has."""
    from memqos.cli.why_cluster import list_workload_pods
    from memqos.record.recent_deaths import list_deaths

    pods = list_workload_pods(live, path)
    names = list(dict.fromkeys(death.pod for death in list_deaths(pods)))
    if not names:
        complain(f"note: no container of {path} has died, as far as statuses and events show")
        names = sorted(pod.metadata.name or "" for pod in pods)
    if len(names) > MOST_PODS:
        complain(f"note: {len(names)} pods: these are {MOST_PODS} of them")
    return [
        _result_of_cluster(live, name, records, access, is_named=True) for name in names[:MOST_PODS]
    ]


def _result_of_snapshot(file: str, namespace: str, name: str, output: StoryOutput) -> WhyResult:
    found = snapshot_pod_stories(file, namespace, name)
    if output == "svg" and not any(each.has_records for each in found):
        raise InputError(
            "a snapshot without records has one reading, and a timeline needs two", file=file
        )
    return WhyResult([each.story for each in found], [each.recording for each in found])


def _result_of_cluster(
    live: LiveCluster,
    name: str,
    records: str | None,
    access: AgentAccessOptions,
    *,
    is_named: bool,
) -> WhyResult:
    report = _read_cluster_history(live, name, is_named=is_named)
    if report is None:
        return _result_of_records(records, live.own_namespace, name, None)
    planned = plan_of_live_pod(live, name)
    namespace = live.namespace
    if records is not None or _has_local_records(namespace, name):
        return _result_of_records(records, namespace, name, report, planned)
    from memqos.cli.why_cluster import fetch_pod_records

    sent = fetch_pod_records(agent_endpoints(live, access), report, namespace, name)
    if sent is None or isinstance(sent, MemqosError):
        notes = report.notes if sent is None else (*report.notes, sent)
        stories = _with_cluster([], [], report._replace(notes=notes), namespace, name)
        return WhyResult(stories)
    recordings = latest_recordings(
        [each for each in sent.recordings if not report.pod or each.who.uid in report.uids()]
    )
    sources = (f"records of the agent on {report.node}",)
    stories = [
        msgspec.structs.replace(story_of(recording, sent.node_recording, planned), sources=sources)
        for recording in recordings
    ]
    files = sent.files.get(f"{namespace}/{name}", {})
    stories = _with_cluster(stories, recordings, report, namespace, name)
    return WhyResult(stories, recordings, files)


def _has_local_records(namespace: str, pod: str) -> bool:
    """Whether an agent on this machine has recorded the pod, where that may be read."""
    try:
        found = read_recordings(
            RECORDS_FOLDER, lambda who: (who.namespace, who.pod) == (namespace, pod)
        )
        return any(True for _ in found)
    except OSError:
        return False


def _show_timeline(results: list[WhyResult], *, opens: bool) -> None:
    from memqos.draw.svg.timeline import timeline_svg
    from memqos.draw.svg.timeline_data import timeline_of

    drawn = []
    for each in results:
        by_name = {recording.who.container: recording for recording in each.recordings}
        if not by_name and not any(story.chapters for story in each.stories):
            pod = f"{each.stories[0].namespace}/{each.stories[0].pod}"
            raise InputError(
                f"there is nothing to draw of pod {pod}: nothing was recorded, and "
                "nothing happened",
                hint="memqos agent records; without -o svg the pod is described",
            )
        drawn += [timeline_of(_recording(by_name, story), story) for story in each.stories]
    if opens:
        from memqos.draw.html.picture import picture_page
        from memqos.draw.text.render import render

        stories = [story for each in results for story in each.stories]
        lines = [line for story in stories for line in (*render(story_text(story)), "")]
        title = f"{stories[0].namespace}/{stories[0].pod}"
        open_page(picture_page(title, timeline_svg(drawn), lines))
    else:
        print_markup(timeline_svg(drawn))


def _print_stories(
    results: list[WhyResult], output: Literal["text", "json", "yaml"], *, readings: bool
) -> None:
    from memqos.draw.text.usage import readings_data, readings_text

    stories = [
        (story, _usage_moments(result, story.container) if readings else ())
        for result in results
        for story in result.stories
    ]
    if output == "text":
        for index, (story, moments) in enumerate(stories):
            print_lines([*([""] if index else ()), *story_text(story)])
            if readings:
                print_lines(["", *readings_text(moments)])
    else:
        containers = []
        for story, moments in stories:
            more = {"readings": readings_data(moments)} if readings else {}
            containers.append(story_data(story) | more)
        emit({"containers": containers}, output)


def _usage_moments(result: WhyResult, container: str) -> "tuple[UsageMoment, ...]":
    from memqos.record.usage import usage_moments

    recording = next((each for each in result.recordings if each.who.container == container), None)
    return usage_moments(recording, result.files.get(container))


def _result_of_records(
    records: str | None,
    namespace: str,
    pod: str,
    report: "ClusterReport | None",
    planned: "PlanLookup" = unknown_plan,
) -> WhyResult:
    """What an agent has recorded here, and its stories with what the cluster reports."""
    folder = records or RECORDS_FOLDER
    recordings, node = read_pod_recordings(folder, namespace, pod)
    stories = [story_of(recording, node, planned) for recording in recordings]
    if report is not None:
        sources = (f"records in {folder}",)
        stories = [msgspec.structs.replace(story, sources=sources) for story in stories]
        stories = _with_cluster(stories, recordings, report, namespace, pod)
    return WhyResult(stories, recordings)


def _read_cluster_history(
    live: LiveCluster, name: str, *, is_named: bool
) -> "ClusterReport | None":
    """What the cluster reports; where it fails, records are enough unless it was named."""
    from memqos.cli.why_cluster import read_pod_history

    try:
        return read_pod_history(live, name)
    except MemqosError as error:
        if is_named or not os.path.isdir(RECORDS_FOLDER):
            raise
        complain(error, "note: the cluster has no information: ")
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
        complain("note: the records here are of an earlier pod of this name: --records shows them")
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
