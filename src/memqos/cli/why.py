"""`memqos why`: what happened to a container's memory, the rule that decided, what prevents it."""

import os
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

import click

from memqos.agent.recorder.files import FOLDER, Recording, recordings
from memqos.agent.story import story_of
from memqos.cli.output import complain, emit
from memqos.draw.story import story_data, story_text
from memqos.errors import InputError

if TYPE_CHECKING:
    from memqos.findings.chapters import Story


@click.command()
@click.argument("pod", metavar="pod/NAME")
@click.argument("container", required=False)
@click.option("-n", "--namespace", default="default", help="The pod's.  [default: default]")
@click.option(
    "--records",
    metavar="DIR",
    default=FOLDER,
    help=f"Where an agent keeps, or kept, its records.  [default: {FOLDER}]",
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
    namespace: str,
    records: str,
    snapshot: str | None,
    output: Literal["text", "json", "yaml", "svg"],
) -> int:
    """Tell why a container was throttled, killed or evicted.

    \b
    memqos why pod/api-1 -n shop                  all its containers
    memqos why pod/api-1 app -n shop -o svg       one of them, drawn
    """
    name = pod.removeprefix("pod/").removeprefix("pods/")
    if snapshot is not None:
        if output == "svg":
            raise InputError("a snapshot is one look, and a timeline takes two", file=snapshot)
        _tell(_in_snapshot(snapshot, namespace, name, container), output)
        return 0
    found, node = _recorded(records, namespace, name, container)
    stories = [story_of(recording, node) for recording in found]
    if output == "svg":
        from memqos.agent.story.timeline import timeline_of
        from memqos.draw.timeline import timeline_svg

        drawn = [timeline_of(each, story) for each, story in zip(found, stories, strict=True)]
        print(timeline_svg(drawn))
    else:
        _tell(stories, output)
    return 0


def _tell(stories: "list[Story]", output: Literal["text", "json", "yaml"]) -> None:
    if output == "text":
        print("\n\n".join("\n".join(story_text(story)) for story in stories))
    else:
        emit({"containers": [story_data(story) for story in stories]}, output)


def _recorded(
    folder: str, namespace: str, pod: str, container: str | None
) -> tuple[list[Recording], Recording | None]:
    if not os.path.isdir(folder):
        raise InputError(
            "there are no records here",
            file=folder,
            hint="memqos agent keeps them; --records says where",
        )
    node, by_uid = None, dict[str, list[Recording]]()
    names: set[str] = set()
    try:
        kept = list(recordings(folder))
    except PermissionError:
        raise InputError("not yours to read", file=folder, hint="run as root") from None
    for recording in kept:
        who = recording.who
        if who.is_node:
            node = recording
            continue
        names.add(f"{who.namespace}/{who.pod}")
        if (who.namespace, who.pod) == (namespace, pod):
            by_uid.setdefault(who.uid, []).append(recording)
    if not by_uid:
        raise _unknown(f"{namespace}/{pod}", names, folder)
    latest = max(by_uid.values(), key=lambda group: max(_last(each) for each in group))
    if len(by_uid) > 1:
        complain(f"note: {len(by_uid)} pods had this name: this is the last of them")
    latest.sort(key=lambda each: each.who.container)
    return _chosen(latest, container), node


def _chosen(found: list[Recording], container: str | None) -> list[Recording]:
    if container is None:
        return found
    chosen = [each for each in found if each.who.container == container]
    if not chosen:
        raise _no_such_container(container, [each.who.container for each in found])
    return chosen


def _in_snapshot(file: str, namespace: str, pod: str, container: str | None) -> "list[Story]":
    from memqos.agent.story.snapshot import stories_in
    from memqos.cli.snapshots import names_in
    from memqos.host.snapshots import load_snapshot

    snapshot = load_snapshot(file)
    stories = list(stories_in(snapshot, names_in(snapshot, file), namespace, pod))
    if not stories:
        names = {
            f"{each.metadata.namespace or 'default'}/{each.metadata.name}"
            for each in snapshot.running
        }
        raise _unknown(f"{namespace}/{pod}", names, file)
    if container is None:
        return stories
    chosen = [story for story in stories if story.container == container]
    if not chosen:
        raise _no_such_container(container, [story.container for story in stories])
    return chosen


def _last(recording: Recording) -> int:
    return max((record.at for record in recording.records), default=0)


def _unknown(wanted: str, names: set[str], file: str) -> InputError:
    close = get_close_matches(wanted, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "is -n the pod's namespace?"
    return InputError(f"nothing is known of pod {wanted}", file=file, hint=hint)


def _no_such_container(wanted: str, names: list[str]) -> InputError:
    return InputError(f"the pod has no container {wanted}", hint=f"it has {', '.join(names)}")
