"""Load the snapshot of a node, and the settings that it has by itself."""

from memqos.host.manifest_files import load_file
from memqos.manifests.documents import Document, find_document, read_documents
from memqos.manifests.snapshot import Snapshot, read_snapshot
from memqos.plan.names import CgroupNames, cgroup_names
from memqos.settings.facts import facts_of_snapshot
from memqos.settings.resolver import NodeSettings, resolve
from memqos.settings.settings import SettingsOptions


def load_snapshot(file: str) -> Snapshot:
    """The snapshot in a file; an unknown format is refused."""
    name, data = load_file(file)
    return read_snapshot(data, name)


def read_document(file: str, kind: str) -> Document:
    """The document of a kind; a file without one, or with two, is refused."""
    name, data = load_file(file)
    found = find_document(data, name, kind)
    for other in read_documents(data, name):
        if isinstance(other, Document) and other.kind == kind and other.index != found.index:
            what, hint = f"the file has another {kind}", f"give a file with one {kind}"
            raise other.error(what, "kind", hint)
    return found


def snapshot_settings(snapshot: Snapshot, file: str) -> NodeSettings:
    """The settings of the snapshot's node, with nothing stated."""
    return resolve(facts_of_snapshot(snapshot, file), SettingsOptions())


def snapshot_cgroup_names(snapshot: Snapshot, file: str) -> CgroupNames:
    """How the node names its cgroups; without a configuration, as most nodes do."""
    config = snapshot_settings(snapshot, file).config
    return cgroup_names(snapshot.driver, config.cgroup_root)
