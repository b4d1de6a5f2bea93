"""What `memqos why` reads from files: the records of an agent, and snapshots."""

import os
from typing import TYPE_CHECKING

from memqos.cli.output import complain
from memqos.cli.why_plan import plan_of_snapshot
from memqos.errors import InputError, nearest_name
from memqos.host.record_files import read_recordings
from memqos.record.recordings import Recording, latest_recordings

if TYPE_CHECKING:
    from memqos.record.recent_deaths import Death
    from memqos.record.snapshot_story import SnapshotStory


def read_folder(folder: str) -> list[Recording]:
    """All records of an agent on this machine."""
    try:
        recordings = list(read_recordings(folder)) if os.path.isdir(folder) else []
    except PermissionError as error:
        file = error.filename or folder
        raise InputError("permission denied", file=file, hint="run as root") from None
    if not recordings:
        raise InputError(
            "there are no records here",
            file=folder,
            hint="memqos agent writes them; name their folder with --records, or read the "
            "cluster with -n",
        )
    return recordings


def read_snapshot_deaths(file: str, namespace: str | None) -> "list[Death]":
    """The containers that have died, by a snapshot."""
    from memqos.host.snapshots import load_snapshot
    from memqos.record.snapshot_story import snapshot_deaths

    return snapshot_deaths(load_snapshot(file), namespace)


def read_pod_recordings(
    folder: str, namespace: str, pod: str
) -> tuple[list[Recording], Recording | None]:
    """Those of the containers of the last pod of a name, and that of its node."""
    recordings = read_folder(folder)
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


def snapshot_pod_stories(file: str, namespace: str, pod: str) -> "list[SnapshotStory]":
    """What a snapshot shows of the containers of a pod."""
    from memqos.host.snapshots import load_snapshot, snapshot_cgroup_names
    from memqos.plan.tree import pod_key
    from memqos.record.snapshot_story import snapshot_recordings, snapshot_stories

    snapshot = load_snapshot(file)
    names = snapshot_cgroup_names(snapshot, file)
    planned = plan_of_snapshot(snapshot, file, namespace, pod)
    stories = snapshot_stories(snapshot, names, namespace, pod, planned)
    if not stories:
        pods = set(map(pod_key, snapshot.running))
        recorded = [each.who for each in snapshot_recordings(snapshot) if not each.who.is_node]
        pods |= {f"{who.namespace}/{who.pod}" for who in recorded}
        raise _unknown_pod_error(f"{namespace}/{pod}", pods, file)
    return stories


def _unknown_pod_error(pod: str, names: set[str], file: str) -> InputError:
    near = nearest_name(pod, names, cutoff=0.5)
    hint = f"did you mean {near}?" if near is not None else "check that -n is the pod's namespace"
    return InputError(f"no information about pod {pod}", file=file, hint=hint)
