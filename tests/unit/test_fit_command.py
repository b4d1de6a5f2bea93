"""`memqos fit`: pods against the nodes of a cluster."""

import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from bench import cluster
from tests.commands import Done, memqos

from memqos.cli.streams import raw_stream
from memqos.cluster.fit_demand import scheduling_demands
from memqos.cluster.fit_survey import FitSurvey, survey_fit
from memqos.release import Release

NODES = "examples/cluster/nodes.yaml"
PODS = "examples/cluster/pods.yaml"


def pod(
    name: str = "web", *, node: str | None = None, phase: str | None = None, **requests: str
) -> str:
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]},
    }
    if node is not None:
        document["spec"]["nodeName"] = node
    if phase is not None:
        document["status"] = {"phase": phase}
    return yaml.safe_dump(document)


def node(name: str, **amounts: str) -> str:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", **amounts}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"allocatable": allocatable},
        }
    )


def fit(pods: str, nodes: str, tmp_path: Path, *options: str) -> Done:
    file = tmp_path / "nodes.yaml"
    file.write_text(nodes)
    return memqos("fit", "-", "--nodes", str(file), *options, stdin=pods)


def test_a_node_that_fits_comes_first_and_the_others_say_what_they_lack(tmp_path: Path) -> None:
    nodes = "---\n".join([node("small", memory="512Mi"), node("large")])
    done = fit(pod(memory="1Gi", cpu="500m"), nodes, tmp_path)
    assert done.code == 0
    assert "pod/web  fits 1 of 2 nodes, best large" in done.out
    rows = [row for row in done.rows() if row and row[0] in ("small", "large")]
    assert rows[0][:3] == ["large", "4", "8Gi"]
    assert rows[1][-5:] == ["too", "small:", "memory", "by", "512Mi"]


def test_a_full_node_is_short_of_what_its_pods_hold(tmp_path: Path) -> None:
    cluster = "---\n".join([node("one"), pod("old", node="one", memory="7680Mi")])
    done = fit(pod(memory="1Gi"), cluster, tmp_path, "-o", "json")
    assert done.code == 2
    (verdict,) = done.data["pods"][0]["nodes"]
    assert verdict["code"] == "Unschedulable"
    assert verdict["short"] == [
        {
            "resource": "memory",
            "requested": "1Gi",
            "free": "512Mi",
            "allocatable": "8Gi",
            "lacking": "512Mi",
            "unresolvable": False,
        }
    ]


def test_pods_that_have_ended_hold_nothing(tmp_path: Path) -> None:
    ended = pod("old", node="one", phase="Succeeded", memory="8Gi")
    done = fit(pod(memory="1Gi"), "---\n".join([node("one"), ended]), tmp_path)
    assert done.code == 0
    assert "1 node with 0 pods" in done.out


def test_running_pods_may_stand_in_a_file_of_their_own() -> None:
    done = memqos("fit", "examples/one.yaml", "--nodes", NODES, "--pods", PODS, "-o", "json")
    free = {each["node"]: each["scores"] for each in done.data["pods"][0]["nodes"]}
    assert free["worker-1"]["leastAllocated"] < free["worker-2"]["leastAllocated"]
    assert done.data["pods"][0]["best"] == "worker-2"


def test_pods_of_other_nodes_or_of_none_are_reported(tmp_path: Path) -> None:
    cluster = "---\n".join([node("one"), pod("a", node="two", memory="1Gi"), pod("b")])
    done = fit(pod(), cluster, tmp_path)
    assert "not counted: 1 pod of nodes that are not given" in done.out
    assert "not counted: 1 pod bound to no node" in done.out


def test_all_places_may_be_taken(tmp_path: Path) -> None:
    cluster = "---\n".join([node("one", pods="1"), pod("old", node="one")])
    done = fit(pod(), cluster, tmp_path)
    assert done.code == 2
    assert "short of room for a pod: all 1 are in use" in done.out


def test_why_shows_the_arithmetic_of_every_node() -> None:
    done = memqos("fit", "examples/one.yaml", "--nodes", NODES, "--pods", PODS, "--why")
    for line in (
        "must be free: cpu 250m, memory 256Mi, from the spec",
        "memory: 14.90Gi allocatable − 7176Mi requested = 8082Mi free ≥ 256Mi",
        "pods: 110 allocatable − 5 taken = 105 free ≥ 1",
        "least allocated 33: 18% of cpu, 49% of memory would be left",
    ):
        assert line in done.out, done.out


def test_many_nodes_are_counted_and_listed_only_when_asked(tmp_path: Path) -> None:
    nodes = "---\n".join(node(f"n{number}", memory=f"{number + 1}Gi") for number in range(30))
    brief = fit(pod(memory="10Gi"), nodes, tmp_path)
    assert "fits 21 of 30 nodes" in brief.out
    assert "memory is short on 9 nodes, 9 of them are too small even when empty" in brief.out
    assert "best n" in brief.out
    assert "\nn0 " not in brief.out
    nowhere = fit(pod(memory="40Gi"), nodes, tmp_path)
    assert nowhere.code == 2
    assert "the nearest lacks 10Gi" in nowhere.out
    assert "nodes" not in fit(pod(memory="10Gi"), nodes, tmp_path, "-o", "json").data["pods"][0]
    listed = fit(pod(memory="10Gi"), nodes, tmp_path, "-o", "json", "--why").data["pods"][0]
    assert len(listed["nodes"]) == 30
    assert "why" in listed["nodes"][0]


def test_the_summary_counts_what_the_list_shows(tmp_path: Path) -> None:
    nodes = "---\n".join(node(f"n{number}", memory=f"{number + 1}Gi") for number in range(15))
    (found,) = fit(pod(memory="10Gi"), nodes, tmp_path, "-o", "json").data["pods"]
    assert found["fitting"] == sum(each["fits"] for each in found["nodes"])
    assert found["best"] == found["nodes"][0]["node"]


def test_the_release_is_that_of_the_newest_kubelet_unless_given(tmp_path: Path) -> None:
    nodes = [yaml.safe_load(node(name)) for name in ("a", "b")]
    for each, version in zip(nodes, ("v1.30.2", "v1.34.1"), strict=True):
        each["status"]["nodeInfo"] = {"kubeletVersion": version}
    text = yaml.safe_dump_all(nodes)
    assert "Kubernetes 1.34" in fit(pod(), text, tmp_path).out
    assert "Kubernetes 1.28" in fit(pod(), text, tmp_path, "--release", "1.28").out


def test_a_node_without_allocatable_gives_all_it_has(tmp_path: Path) -> None:
    found = yaml.safe_load(node("one"))
    found["status"] = {"capacity": {"cpu": "1", "memory": "1Gi", "pods": "10"}}
    done = fit(pod(memory="1Gi"), yaml.safe_dump(found), tmp_path)
    assert done.code == 0


def test_a_snapshot_is_a_node_with_its_pods() -> None:
    done = memqos("fit", "examples/one.yaml", "--nodes", "tests/nodes/numa.json")
    assert done.code == 0
    assert "Kubernetes 1.38 · 1 node with 8 pods" in done.out
    assert "node1 comes from a snapshot" in done.out


def test_a_pod_that_is_bound_already_is_reported() -> None:
    done = memqos("fit", PODS, "--nodes", NODES)
    assert "note: it is bound to worker-1 already" in done.out


def test_one_invalid_pod_does_not_hide_the_others(tmp_path: Path) -> None:
    bad = pod("bad", memory="1Gi").replace("requests:", "limits: {memory: 1Mi}\n      requests:")
    done = fit("---\n".join([bad, pod("good")]), node("one"), tmp_path)
    assert done.code == 1
    assert "pod/good  fits 1 of 1 node" in done.out
    assert "pod/bad" not in done.out
    assert "must be less than or equal to memory limit of 1Mi" in done.err


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ("apiVersion: v1\nkind: Service\n", "'Service' is not used here"),
        ("kind: List\nitems: [{kind: Nodes}]\n", "'Nodes' is not used here"),
        ("kind: List\nitems: [{kind: Service}]\n", "'Service' is not used here"),
        (pod(node="one"), "there is no Node in it"),
        (node("one").replace("8Gi", "lots"), "status.allocatable.memory: 'lots' is not a quantity"),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: x}\n", "has no status.allocatable"),
        (node(""), "metadata.name: required, but missing"),
    ],
)
def test_nodes_that_cannot_be_read_give_no_answer(nodes: str, says: str, tmp_path: Path) -> None:
    done = fit(pod(), nodes, tmp_path)
    assert done.code == 1
    assert done.out == ""
    assert says in done.err


def test_a_dump_of_a_cluster_holds_other_kinds_too(tmp_path: Path) -> None:
    """`kubectl get pods,nodes,limitranges,resourcequotas -A`, as `memqos audit` takes it."""
    items = [*map(yaml.safe_load, (node("one"), pod("web", node="one"))), {"kind": "LimitRange"}]
    done = fit(pod(), yaml.safe_dump({"kind": "List", "items": items}), tmp_path)
    assert done.code == 0
    assert "1 node with 1 pod " in done.out
    assert done.err == "skipped, as only Node and Pod and Snapshot are used here: 1 LimitRange\n"


def test_a_running_pod_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    cluster = "---\n".join([node("one"), pod("a", node="one"), pod("b", node="one", memory="x")])
    done = fit(pod(), cluster, tmp_path)
    assert done.code == 1
    assert "nodes.yaml:33:17:" in done.err
    assert "'x' is not a quantity" in done.err


def test_progress_is_shown_on_a_terminal_alone_and_never_on_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memqos.cli.fit.LONG", 1)
    quiet = fit(pod(), node("one"), tmp_path)
    assert quiet.err == ""
    shown: list[str] = []
    bar = click.progressbar

    def spy(*arguments: Any, **options: Any) -> Any:
        shown.append(options["label"])
        assert options["file"] is raw_stream(sys.stderr)
        return bar(*arguments, **options)

    monkeypatch.setattr("memqos.cli.fit.click.progressbar", spy)
    monkeypatch.setattr("memqos.cli.fit._at_a_terminal", lambda: True)
    done = fit(pod(), node("one"), tmp_path)
    assert shown == ["fitting"]
    assert done.out == quiet.out


def test_the_answer_does_not_depend_on_how_nodes_and_pods_are_grouped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = Release.of()
    pods, nodes = cluster.pods(20), cluster.nodes(30, release)

    def surveyed() -> list[FitSurvey]:
        return list(survey_fit(scheduling_demands(pods, release), nodes, release))

    at_once = surveyed()
    monkeypatch.setattr("memqos.cluster.fit_scores.NODE_BLOCK", 7)
    monkeypatch.setattr("memqos.cluster.fit_survey.BATCH", 3)
    in_parts = surveyed()
    for one, other in zip(at_once, in_parts, strict=True):
        assert (one.fitting, one.scarce) == (other.fitting, other.scarce)
        # Of nodes that score the same any may be named.
        assert _liked(one) == _liked(other)


def _liked(found: FitSurvey) -> int | None:
    scores = found.scores
    return None if scores is None else scores.least_allocated + (scores.balanced or 0)


def test_absurd_numbers_are_answered_too(tmp_path: Path) -> None:
    huge = str(10**30)
    state = "---\n".join([node("one"), pod("old", node="one", phase="Running", memory=huge)])
    done = fit(pod(memory=huge), state, tmp_path, "-o", "json")
    assert done.code == 2
    assert done.data["pods"][0]["fitting"] == 0


def test_a_node_of_an_unknown_release_is_an_error_and_the_others_are_still_compared(
    tmp_path: Path,
) -> None:
    old = yaml.safe_load(node("old"))
    old["status"]["nodeInfo"] = {"kubeletVersion": "v1.20.4"}
    done = fit(pod(memory="1Gi"), "---\n".join([node("new"), yaml.safe_dump(old)]), tmp_path)
    assert done.code == 1
    assert "nodes.yaml:21:21: status.nodeInfo.kubeletVersion" in done.err
    assert "Kubernetes 1.20 is older than any release that memqos supports" in done.err
    assert "pod/web  fits 1 of 1 node, best new" in done.out
