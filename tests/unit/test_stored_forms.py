"""Files that an earlier memqos wrote are read as ever, and names that others rely on stay.

`tests/stored` holds one file of each form, and the public names: they are added to, never changed.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.commands import ROOT, memqos
from tests.fakes.cgroups import PAGE, FakeKernel
from tests.fakes.node import memory_folder

from memqos.agent.configuration.sources import load_configuration
from memqos.agent.metric_catalogue import ALL_METRICS
from memqos.converge.direct_driver import DirectDriver
from memqos.converge.journal import open_journal
from memqos.converge.records import Hierarchy, decode_journal
from memqos.converge.rollback import rollback
from memqos.converge.saved_plan import decode_saved_plan
from memqos.converge.steps import WriteOptions
from memqos.converge.undo import undo_entries
from memqos.findings.catalogue import RULES_BY_ID
from memqos.plan.rules import RULES

STORED: Final = ROOT / "tests" / "stored"
NODE: Final = ("--node", "examples/node/node.yaml", "--kubelet", "examples/node/kubelet.yaml")
CLUSTER: Final = "examples/cluster"
COMMANDS: Final = {
    "explain": ("explain", "examples/shop.yaml", *NODE),
    "plan": ("plan", "--snapshot", "tests/nodes/numa.json", "--policy", "None"),
    "doctor": ("doctor", "--snapshot", "tests/nodes/numa.json"),
    "why": ("why", "pod/api-1", "-n", "shop", "--records", "tests/stored/records"),
    "audit": ("audit", f"{CLUSTER}/dump.json", "--usage", f"{CLUSTER}/metrics.json"),
    "fit": ("fit", f"{CLUSTER}/pods.yaml", "--nodes", f"{CLUSTER}/nodes.yaml"),
    "rank oom": ("rank", "oom", "--from", f"{CLUSTER}/processes.json", "--total", "4Gi"),
    "resize": ("resize", "examples/nginx.yaml", "examples/nginx.yaml"),
    "rules": ("rules",),
}
"""What a script may read, by name; -o json is added."""
FIXED_KEY: Final = re.compile(r"[A-Za-z_]+")


class StoredKernel(FakeKernel):
    """A tree whose cgroups have the inodes that a stored journal knows."""

    def __init__(self, root: Path, inodes: dict[str, int]) -> None:
        super().__init__(root)
        self.inodes = inodes

    def identity(self, path: str) -> int | None:
        return self.inodes.get(path)


def records(journal: Path) -> list[dict[str, Any]]:
    """What it says, read without memqos: length, checksum and JSON a line."""
    return [json.loads(line.split(" ", 2)[2]) for line in journal.read_text().splitlines()]


def test_a_journal_rolls_back() -> None:
    header, *rest = records(STORED / "journal")
    intents = [each for each in rest if each["type"] == "intent"]
    assert len(intents) > 3
    with memory_folder() as folder:
        kernel = StoredKernel(folder, {each["path"]: each["cgroup"] for each in intents})
        for path in sorted(kernel.inodes):
            kernel.make(path)
        for each in intents:
            kernel.set(each["path"], each["file"], each["new"])
        private = folder / "run"
        private.mkdir(mode=0o700)
        (private / "journal").write_bytes((STORED / "journal").read_bytes())
        tree = Hierarchy(*(header[name] for name in ("boot", "root", "device", "inode")))
        with open_journal(str(private), tree) as journal:
            done = rollback(kernel, DirectDriver(kernel, 10), journal, WriteOptions(PAGE, 0))
        assert {result.outcome for result in done.results} == {"written"}
        for each in intents:
            assert kernel.read(each["path"], each["file"]) == each["old"]


def test_a_journal_of_a_write_in_the_kubelets_place_is_read() -> None:
    header, written, _ = records(STORED / "journal-kubelet-write")
    assert written.pop("type") == "kubelet-write"
    contents = decode_journal((STORED / "journal-kubelet-write").read_bytes())
    assert contents.damage is None
    assert header["format"] == 1
    (entry,) = undo_entries(contents.records).values()
    assert entry.is_unconfirmed
    assert (entry.path, entry.file, entry.cgroup) == tuple(
        written[name] for name in ("path", "file", "cgroup")
    )
    assert (entry.original, entry.ours) == (written["old"], (written["new"],))


def test_a_saved_plan_is_read() -> None:
    data = (STORED / "plan.json").read_bytes()
    changes = json.loads(data)["changes"]
    steps = decode_saved_plan(data, "plan.json").steps
    assert [(each.change.path, each.change.file, each.change.new) for each in steps] == [
        (each["path"], each["file"], each["new"]) for each in changes
    ]
    message = [(each.change.setting.rule.id, each.change.setting.because.text) for each in steps]
    assert message == [(each["rule"], RULES[each["rule"]].text) for each in changes]


def test_a_configuration_is_read() -> None:
    configuration = load_configuration(str(STORED / "memqos.yaml"), {}, {})
    assert (configuration.mode, configuration.fight.times) == ("enforce", 7)


@pytest.mark.parametrize("folder", ["records", "records-without-marks"])
def test_records_tell_a_story(folder: str) -> None:
    done = memqos("why", "pod/api-1", "-n", "shop", "--records", f"tests/stored/{folder}")
    assert "oom" in done.out.lower()


def test_a_snapshot_is_planned() -> None:
    done = memqos("plan", "--snapshot", "tests/nodes/numa.json")
    assert done.code == 0, done.err


def names() -> dict[str, list[str]]:
    """All names that others rely on, as they are now."""
    sources = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    found = {
        "metrics": sorted(ALL_METRICS),
        "rules": sorted({*RULES, *RULES_BY_ID}),
        "annotations": sorted(set(re.findall(r'"(memqos\.io/[a-z-]+)"', sources))),
    }
    for name, arguments in COMMANDS.items():
        done = memqos(*arguments, "-o", "json")
        found[f"json of {name}"] = sorted(set(_keys(done.data)))
    return found


def _keys(data: Any, above: str = "") -> Iterator[str]:
    if isinstance(data, list):
        for each in data:
            yield from _keys(each, f"{above}[]")
    elif isinstance(data, dict):
        for key, value in data.items():
            path = f"{above}.{key}" if FIXED_KEY.fullmatch(key) else f"{above}.*"
            yield path
            yield from _keys(value, path)


def test_no_name_is_lost() -> None:
    stored: dict[str, list[str]] = json.loads((STORED / "names.json").read_text())
    now = names()
    lost = {
        kind: sorted(set(before) - set(now.get(kind, ())))
        for kind, before in stored.items()
        if set(before) - set(now.get(kind, ()))
    }
    assert lost == {}
