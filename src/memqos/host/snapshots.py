"""The snapshot of a node in a file."""

from memqos.host.manifests import load_file
from memqos.manifests.snapshot import Snapshot, read_snapshot


def load_snapshot(file: str) -> Snapshot:
    """The snapshot in a file; one of a form that is not known is refused."""
    name, data = load_file(file)
    return read_snapshot(data, name)
