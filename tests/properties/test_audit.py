"""However a dump is written, cut and shared out, the audit of a cluster is the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memqos.audit.node_memory import NodeMemory
from memqos.audit.pod_counter import CountRequest
from memqos.audit.totals import ClusterTotals
from memqos.host import dumps
from memqos.host.census_reader import CensusReader
from memqos.host.dumps import dump_of
from memqos.release import Release
from memqos.settings.settings import Settings

TERMS = Settings(Release.of("1.37", {"MemoryQoS": True}), 0.8, "TieredReservation")
NODES = {
    "n0": NodeMemory(capacity=8 << 30, enforced=7 << 30, published=7 << 30),
    "n1": NodeMemory(capacity=4 << 30, enforced=4 << 30, published=4 << 30),
}

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

amounts = st.sampled_from([None, "64Mi", "1Gi", "2Gi", "1500M"])
names = st.sampled_from(["a", "b", 'q"}],{"', "ü{[", "\\"])


@st.composite
def resources(draw: st.DrawFn) -> dict[str, Any]:
    request, limit = draw(amounts), draw(amounts)
    sides = {"requests": request, "limits": limit}
    return {side: {"memory": amount} for side, amount in sides.items() if amount}


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    containers = [
        {"name": f"c{number}", "image": "i", "env": [{"name": draw(names)}], "resources": each}
        for number, each in enumerate(draw(st.lists(resources(), min_size=1, max_size=3)))
    ]
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"p-{draw(st.integers(0, 99))}",
            "namespace": draw(names),
            "generateName": draw(st.sampled_from(["p-", "q-"])),
        },
        "spec": {
            "containers": containers,
            "nodeName": draw(st.sampled_from(["n0", "n1", "n2"])),
            "priority": draw(st.integers(-2, 2)),
        },
    }
    if draw(st.booleans()):
        pod["metadata"]["uid"] = "u"
        statuses = [
            {"name": each["name"], "resources": draw(resources())}
            for each in draw(st.permutations(containers))
        ]
        pod["status"] = {"phase": "Running", "containerStatuses": statuses}
    return pod


clusters = st.lists(pods(), max_size=25)


def unique(cluster: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for number, pod in enumerate(cluster):
        if "uid" in pod["metadata"]:
            pod["metadata"]["uid"] = f"u{number}"
    return cluster


def usage_of(cluster: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "kind": "PodMetrics",
            "metadata": pod["metadata"],
            "containers": [
                {"name": each["name"], "usage": {"memory": f"{137 * (1 + number)}Mi"}}
                for each in pod["spec"]["containers"]
            ],
        }
        for number, pod in enumerate(cluster[::2])
    ]


def tallied(*files: Path, jobs: int = 1) -> ClusterTotals:
    with CensusReader(jobs, {}, lambda size, objects: None) as survey:
        survey.read(dump_of(str(file)) for file in files)
        assert not survey.faults
        found = survey.count_pods(
            CountRequest(
                settings=TERMS,
                nodes=NODES,
                usage=survey.cluster_objects().usage,
                with_rows=True,
            )
        )
    found.pod_rows.sort()
    found.unreadable.sort()
    return found


def listed(folder: Path, objects: list[dict[str, Any]], **form: Any) -> Path:
    file = folder / "list.json"
    file.write_text(json.dumps({"kind": "List", "items": objects}, **form))
    return file


def lines(folder: Path, objects: list[dict[str, Any]], name: str = "lines") -> Path:
    file = folder / f"{name}.ndjson"
    file.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return file


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "DUMP_BLOCK", 900)
    monkeypatch.setattr(dumps, "_HEAD", 200)


unhurried = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@unhurried
@given(clusters, st.sampled_from([None, 1, 4]), st.booleans())
def test_a_list_is_audited_as_its_objects_are(
    tmp_path: Path, cluster: list[dict[str, Any]], indent: int | None, ascii: bool
) -> None:
    objects = [*unique(cluster), *usage_of(cluster)]
    whole = listed(tmp_path, objects, indent=indent, ensure_ascii=ascii)
    assert tallied(whole) == tallied(lines(tmp_path, objects))


@unhurried
@given(clusters, st.integers(0, 25))
def test_the_parts_of_a_dump_come_to_the_whole(
    tmp_path: Path, cluster: list[dict[str, Any]], cut: int
) -> None:
    objects = unique(cluster)
    one, other = lines(tmp_path, objects[:cut], "one"), lines(tmp_path, objects[cut:], "other")
    usage = lines(tmp_path, usage_of(cluster), "usage")
    whole = lines(tmp_path, objects)
    files = [file for file in (usage, one, other) if file.read_bytes()]
    expected = tallied(*[file for file in (whole, usage) if file.read_bytes()])
    assert tallied(*files) == expected


@settings(unhurried, max_examples=15)
@given(clusters)
def test_two_processes_count_as_one_does(tmp_path: Path, cluster: list[dict[str, Any]]) -> None:
    file = listed(tmp_path, [*unique(cluster), *usage_of(cluster)])
    assert tallied(file, jobs=2) == tallied(file)


@unhurried
@given(clusters, st.data())
def test_of_a_dump_cut_anywhere_only_what_is_cut_is_missing(
    tmp_path: Path, cluster: list[dict[str, Any]], data: st.DataObject
) -> None:
    objects = unique(cluster)
    file = lines(tmp_path, objects)
    text = file.read_bytes()
    cut = data.draw(st.integers(0, len(text)))
    file.write_bytes(text[:cut])
    whole = text[:cut].count(b"\n") if cut < len(text) else len(objects)
    partial = text[:cut].rpartition(b"\n")[2]
    if partial == (text.split(b"\n")[whole] if whole < len(objects) else b""):
        whole += bool(partial)
        partial = b""
    with CensusReader(1, {}, lambda size, objects: None) as survey:
        survey.read([dump_of(str(file))])
        found = survey.count_pods(CountRequest(settings=TERMS, nodes=NODES))
    assert sum(node.pods for node in found.nodes.values()) == whole
    assert len(survey.faults) == bool(partial)
