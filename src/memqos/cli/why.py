"""`memqos why`: what happened to a container's memory, the rule that decided, what prevents it."""

import os
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

import click

from memqos.agent.recorder.files import FOLDER
from memqos.agent.recorder.reading import Recording, latest_of, recordings
from memqos.agent.story import story_of
from memqos.cli.output import complain, emit
from memqos.draw.story import story_data, story_text
from memqos.errors import InputError

if TYPE_CHECKING:
    from memqos.agent.story.snapshot import Retold
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
        told = _in_snapshot(snapshot, namespace, name, container)
        if output == "svg" and not any(each.is_recorded for each in told):
            raise InputError(
                "a snapshot without records is one look, and a timeline takes two", file=snapshot
            )
        found, stories = [each.recording for each in told], [each.story for each in told]
    else:
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
    try:
        kept = list(recordings(folder))
    except PermissionError:
        raise InputError("not yours to read", file=folder, hint="run as root") from None
    node = next((each for each in kept if each.who.is_node), None)
    pods = [each for each in kept if not each.who.is_node]
    named = [each for each in pods if (each.who.namespace, each.who.pod) == (namespace, pod)]
    if not named:
        names = {f"{each.who.namespace}/{each.who.pod}" for each in pods}
        raise _unknown(f"{namespace}/{pod}", names, folder)
    pods_of_name = len({each.who.uid for each in named})
    if pods_of_name > 1:
        complain(f"note: {pods_of_name} pods had this name: this is the last of them")
    return _chosen(latest_of(named), container), node


def _chosen(found: list[Recording], container: str | None) -> list[Recording]:
    if container is None:
        return found
    chosen = [each for each in found if each.who.container == container]
    if not chosen:
        raise _no_such_container(container, [each.who.container for each in found])
    return chosen


def _in_snapshot(file: str, namespace: str, pod: str, container: str | None) -> "list[Retold]":
    from memqos.agent.recorder.carried import carried_by
    from memqos.agent.story.snapshot import stories_in
    from memqos.cli.snapshots import names_in
    from memqos.host.snapshots import load_snapshot

    snapshot = load_snapshot(file)
    told = stories_in(snapshot, names_in(snapshot, file), namespace, pod)
    if not told:
        names = {
            f"{each.metadata.namespace or 'default'}/{each.metadata.name}"
            for each in snapshot.running
        }
        carried = [each.who for each in carried_by(snapshot) if not each.who.is_node]
        names |= {f"{who.namespace}/{who.pod}" for who in carried}
        raise _unknown(f"{namespace}/{pod}", names, file)
    if container is None:
        return told
    chosen = [each for each in told if each.story.container == container]
    if not chosen:
        raise _no_such_container(container, [each.story.container for each in told])
    return chosen


def _unknown(wanted: str, names: set[str], file: str) -> InputError:
    close = get_close_matches(wanted, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "is -n the pod's namespace?"
    return InputError(f"nothing is known of pod {wanted}", file=file, hint=hint)


def _no_such_container(wanted: str, names: list[str]) -> InputError:
    return InputError(f"the pod has no container {wanted}", hint=f"it has {', '.join(names)}")
