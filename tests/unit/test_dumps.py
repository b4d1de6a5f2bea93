import gzip
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memqos.audit.census import MeasuredUsage
from memqos.audit.pod_counter import CountRequest
from memqos.audit.totals import ClusterTotals
from memqos.errors import InputError
from memqos.host import dumps
from memqos.host.census_reader import CensusReader
from memqos.host.dumps import DumpBlock, DumpPart, Restart, dump_of
from memqos.manifests.dumps.text import DumpedText, DumpLayout, Scanner, dump_layout
from memqos.release import Release
from memqos.settings.settings import Settings

SETTINGS = Settings(Release.of("1.36", {"MemoryQoS": True}), 0.9, "TieredReservation")


def pod(number: int, **more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": f"{64 * (1 + number % 3)}Mi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"web-{number}",
            "namespace": f"team-{number % 2}",
            "uid": f"uid-{number}",
            # Looks like the start of another pod, and is not.
            "managedFields": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"a": [{}]}}] * 2,
        },
        "spec": {
            "nodeName": f"node-{number % 3}",
            "containers": [{"name": "app", "image": "i", "resources": resources}],
        },
        "status": {"phase": "Running", "qosClass": "Burstable"},
        **more,
    }


def node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": {"cpu": "4", "memory": "16Gi"}, "nodeInfo": {}},
    }


def listed(objects: list[Any], **form: Any) -> str:
    return json.dumps({"apiVersion": "v1", "items": objects, "kind": "List"}, **form)


def lines(objects: list[Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in objects)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that every dump here is cut into many."""
    monkeypatch.setattr(dumps, "DUMP_BLOCK", 2000)
    monkeypatch.setattr(dumps, "_HEAD", 400)


def surveyed(*files: Path | str, jobs: int = 1) -> tuple[ClusterTotals, list[str], CensusReader]:
    with CensusReader(jobs, {}, lambda size, objects: None) as survey:
        survey.read(dump_of(str(file)) for file in files)
        found = survey.count_pods(CountRequest(settings=SETTINGS, nodes={}))
        survey.report_duplicates()
        for place, name, what, field in found.unreadable:
            survey.add_fault_at(place, f"{name}: {what}", field)
        survey.cluster_objects()
    return found, [str(fault) for fault in survey.faults], survey


def count(found: ClusterTotals) -> int:
    return sum(each.pods for each in found.nodes.values())


FORMS: dict[str, Callable[[list[Any]], str]] = {
    "as kubectl writes it": lambda objects: listed(objects, indent=4),
    "on one line": lambda objects: listed(objects, separators=(",", ":")),
    "on one line with spaces": listed,
    "an object a line": lines,
    "objects one after the other": lambda objects: "\n".join(
        json.dumps(each, indent=2) for each in objects
    ),
    "a bare array": json.dumps,
    "a list a line": lambda objects: lines(
        [{"kind": "List", "items": objects[:20]}, {"kind": "List", "items": objects[20:]}]
    ),
    "a list after the other": lambda objects: listed(objects[:20]) + "\n" + listed(objects[20:]),
    "a list with an unusual head": lambda objects: json.dumps(
        {"x": {"y": {}}, "kind": "List", "items": objects}
    ),
    "YAML": lambda objects: (
        "\n---\n".join(json.dumps(each, indent=1) for each in [*objects, {}])
        .rpartition("\n---")[0]
        .replace("{", " {", 1)
        .join(["# a comment\n", "\n"])
    ),
}


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_a_dump_is_read_in_whatever_form_it_comes(form: str, jobs: int, tmp_path: Path) -> None:
    objects = [pod(number) for number in range(60)] + [node("node-0")]
    plain, expected = tmp_path / "plain.json", tmp_path / "expected.json"
    plain.write_text(FORMS[form](objects))
    expected.write_text(lines(objects))
    found, faults, survey = surveyed(plain, jobs=jobs)
    assert not faults
    assert count(found) == 60
    assert found == surveyed(expected)[0]
    assert not survey.faults


def test_items_of_a_pod_list_of_the_api_have_no_kind(tmp_path: Path) -> None:
    items = [pod(number) for number in range(20)]
    for item in items:
        del item["kind"], item["apiVersion"]
    dump = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}
    file = tmp_path / "pods.json"
    file.write_text(json.dumps(dump | {"items": items}))
    found, faults, _ = surveyed(file)
    assert (count(found), faults) == (20, [])


def test_compressed_and_standard_input_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = listed([pod(number) for number in range(60)]).encode()
    packed = tmp_path / "dump.json.gz"
    packed.write_bytes(gzip.compress(text))
    assert count(surveyed(packed)[0]) == 60
    assert count(surveyed(packed, jobs=2)[0]) == 60
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert count(surveyed("-")[0]) == 60
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(text))))
    assert count(surveyed("-")[0]) == 60


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_of_nodes_with_one_name_the_first_counts_whoever_reads_it(
    jobs: int, tmp_path: Path
) -> None:
    nodes = [node(f"node-{number % 5}") for number in range(60)]
    for number, each in enumerate(nodes):
        each["status"]["capacity"]["memory"] = str(number)
    file = tmp_path / "nodes.json"
    file.write_text(listed(nodes))
    with CensusReader(jobs, {}, lambda size, objects: None) as survey:
        survey.read([dump_of(str(file))])
        found = survey.cluster_objects().nodes
    assert {name: (each.status.capacity or {})["memory"] for name, each in found.items()} == {
        f"node-{number}": str(number) for number in range(5)
    }


@pytest.mark.parametrize("jobs", [1, 2])
def test_usage_that_is_there_again_is_a_history_whoever_reads_it(jobs: int, tmp_path: Path) -> None:
    file = tmp_path / "usage.ndjson"
    usages = [
        {
            "kind": "PodMetrics",
            "metadata": {"name": f"web-{number % 20}", "namespace": "a"},
            "containers": [{"name": f"c{number // 20}", "usage": {"memory": "1Mi"}}],
        }
        for number in range(60)
    ]
    file.write_text(lines(usages))
    with CensusReader(jobs, {}, lambda size, objects: None) as survey:
        survey.read([dump_of(str(file))])
        found = survey.cluster_objects().usage
    assert len(found) == 20
    most = {f"c{number}": 1 << 20 for number in range(3)}
    assert all(each == MeasuredUsage(1 << 20, most, 3) for each in found.values())


class Restless(NamedTuple):
    """A source that starts again now and then, and cannot read some of it."""

    tries: int

    def blocks(self) -> Iterator[DumpPart]:
        for left in reversed(range(self.tries)):
            for number in range(12):
                text = lines([pod(number), node(f"node-{left}")]).encode()
                layout = DumpLayout(form="lines", start=0, opening=None)
                yield DumpBlock(file="f", layout=layout, end=len(text), text=text, is_text=True)
                yield InputError(f"{number} of {left} cannot be read")
            if left:
                yield Restart()


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("tries", [1, 3])
def test_a_source_that_starts_again_counts_once(jobs: int, tries: int, tmp_path: Path) -> None:
    file = tmp_path / "before.ndjson"
    file.write_text(lines([pod(number) for number in range(20, 40)]))
    with CensusReader(jobs, {}, lambda size, objects: None) as survey:
        survey.read([dump_of(str(file)), Restless(tries)])
        found = survey.count_pods(CountRequest(settings=SETTINGS, nodes={}))
        survey.report_duplicates()
        assert count(found) == 32
        assert set(survey.cluster_objects().nodes) == {"node-0"}
        assert [str(each) for each in survey.faults] == [
            f"{number} of 0 cannot be read" for number in range(12)
        ]


@pytest.mark.parametrize("filling", [b"", b"\0" * 70_000])
def test_one_compressed_stream_may_follow_another(tmp_path: Path, filling: bytes) -> None:
    lines = [json.dumps(pod(number)).encode() + b"\n" for number in range(60)]
    packed = tmp_path / "dump.json.gz"
    packed.write_bytes(filling.join(map(gzip.compress, lines)) + filling)
    found, faults, _ = surveyed(packed)
    assert (count(found), faults) == (60, [])


def test_what_was_compressed_before_it_broke_off_is_read(tmp_path: Path) -> None:
    text = listed([pod(number) for number in range(60)]).encode()
    packed, whole = tmp_path / "dump.json.gz", gzip.compress(text)
    counts = []
    for size in (200, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        packed.write_bytes(whole[:size])
        found, faults, _ = surveyed(packed)
        assert f"{packed}: cannot be decompressed: it ends too soon" in map(str, faults)
        counts.append(count(found))
    assert counts == sorted(counts)
    assert 0 < counts[1] < 60
    assert counts[-1] == 60


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("form", ["as kubectl writes it", "on one line", "an object a line"])
def test_of_a_dump_that_was_cut_short_all_whole_pods_are_read(
    form: str, jobs: int, tmp_path: Path
) -> None:
    objects = [pod(number) for number in range(40)]
    whole = FORMS[form](objects)
    file = tmp_path / "dump.json"
    place = whole.index('"web-33"')
    file.write_text(whole[:place])
    found, faults, _ = surveyed(file, jobs=jobs)
    assert count(found) == 33
    assert len(faults) == 1
    assert "ends within this object" in faults[0]
    # The decoys come after the name: the last start of an object before it is the pod's own.
    opening = whole.rindex("{", 0, whole.rindex("apiVersion", 0, place))
    line = whole.count("\n", 0, opening) + 1
    assert faults[0].startswith(f"{file}:{line}:{opening - whole.rfind(chr(10), 0, opening)}: ")


def test_a_list_that_is_cut_between_two_pods_is_reported(tmp_path: Path) -> None:
    whole = listed([pod(number) for number in range(40)])
    file = tmp_path / "dump.json"
    file.write_text(
        whole[: whole.index(', {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-20"')]
    )
    found, faults, _ = surveyed(file)
    assert count(found) == 20
    assert ["ends before this list does" in fault for fault in faults] == [True]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("form", ["as kubectl writes it", "on one line", "an object a line"])
@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ('"web-17"', "17", "expected a string, got an integer"),
        ('"web-17"', '"web-17" "x"', "this object is broken"),
        ('"web-17"', '{"web-17"', "broken"),
        ('"web-17"', "[[]", "broken"),
        ('"web-17"', '"web-17', ""),
    ],
)
def test_one_broken_pod_costs_no_other(
    form: str, jobs: int, good: str, bad: str, message: str, tmp_path: Path
) -> None:
    objects = [pod(number) for number in range(40)]
    text = FORMS[form](objects)
    file = tmp_path / "dump.json"
    file.write_text(text.replace(good, bad))
    found, faults, _ = surveyed(file, jobs=jobs)
    assert count(found) == 39
    assert len(faults) == 1
    assert message in faults[0]
    place = text.index(good)
    lines_before = text.count("\n", 0, place)
    reported_line = int(faults[0].removeprefix(f"{file}:").split(":")[0])
    if form == "an object a line":
        assert reported_line == lines_before + 1
    else:
        assert lines_before - 12 <= reported_line <= lines_before + 2


def test_a_quantity_that_is_none_is_reported_with_its_place(tmp_path: Path) -> None:
    objects = [pod(number) for number in range(40)]
    objects[23]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "much"}}
    file = tmp_path / "dump.ndjson"
    file.write_text(lines(objects))
    found, faults, _ = surveyed(file)
    assert count(found) == 39
    assert faults == [
        f"{file}:24:1: spec.containers[0].resources.limits[memory]: "
        "team-1/web-23: 'much' is not a quantity"
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_pod_that_is_there_twice_counts_once(jobs: int, tmp_path: Path) -> None:
    first, second = tmp_path / "one.ndjson", tmp_path / "two.json"
    first.write_text(lines([pod(number) for number in range(20)]))
    second.write_text(lines([pod(number) for number in range(15, 40)]))
    found, faults, _ = surveyed(first, second, jobs=jobs)
    assert count(found) == 40
    assert len(faults) == 5
    assert faults[0].startswith(f"{second}:1:1: the UID uid-15 is used by an earlier pod too")


def test_other_kinds_are_counted_and_skipped(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {}}
    file.write_text(listed([pod(1), other, other, node("node-1"), pod(2)]))
    with CensusReader(1, {}, lambda size, objects: None) as survey:
        survey.read([dump_of(str(file))])
        assert survey.cluster_objects().skipped_kinds == {"Deployment": 2}
        assert list(survey.cluster_objects().nodes) == ["node-1"]
        assert not survey.faults


def test_a_file_that_is_not_there_is_a_fault_and_the_others_are_read(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_text(listed([pod(1)]))
    found, faults, _ = surveyed(tmp_path / "none.json", file)
    assert count(found) == 1
    assert faults == [f"{tmp_path}/none.json: no such file or directory"]


def scan(text: bytes) -> Iterator[DumpedText | InputError]:
    layout = dump_layout(text)
    return Scanner("f", layout).feed(text[layout.start :], is_last=True)


def test_the_head_of_a_list_may_come_in_any_order() -> None:
    for head in (
        b'{"items":[{}]}',
        b'{"kind":"List","apiVersion":"v1","metadata":{"x":""},"items":[{}]}',
        b'\xef\xbb\xbf {\n "apiVersion": "v1",\n "items" : [ {} ] , "kind": "List" }',
        b"[{}]",
    ):
        found = list(scan(head))
        assert [each.text for each in found if isinstance(each, DumpedText)] == [b"{}"]
        assert len(found) == 1


def test_an_empty_list_holds_nothing() -> None:
    assert list(scan(b'{"kind":"List","items":[]}\n')) == []


def test_a_scanner_goes_on_where_a_block_ends() -> None:
    scanner = Scanner("f", DumpLayout(form="lines", start=0, opening=None))
    first = list(scanner.feed(b'{"a":1}\n{"b":', is_last=False))
    second = list(scanner.feed(b"2}\n", is_last=True))
    assert [each.text for each in first + second if isinstance(each, DumpedText)] == [
        b'{"a":1}',
        b'{"b":2}',
    ]
    assert isinstance(second[0], DumpedText)
    assert (second[0].line, second[0].column) == (2, 1)
