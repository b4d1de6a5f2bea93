"""Amounts that Kubernetes takes and no machine has: one pod with them spoils nothing for others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders import box, node_settings, pod
from tests.commands import ROOT, Done, memqos
from tests.fakes.reviews import container, review

from memqos.findings.policy import AdmissionPolicy, LimitRatio
from memqos.plan.semantics import semantics
from memqos.release import Release
from memqos.serve.admission import PodReviewer
from memqos.settings.settings import Policy as Reservation

HUGE = ["1e999", "10e399", "9223372036854775808", "9" * 400, "100000E"]
"""Quantities past the largest int64, which an API server stores."""
ODD = [*HUGE, "9223372036854775807", "8Ei", "1e-999", "0.0000000001", "0"]
NEGATIVE = ["-1", "-1e999"]
UNREADABLE = ["9" * 5000, "1e1001", "1e999999999", "9" * 300 + "e999", "0." + "9" * 5000]
"""Quantities that Kubernetes would take, and memqos does not read."""

FORMS = ["table", "json", "yaml"]


def stored(name: str, request: str, limit: str | None = None, node: str | None = "n1") -> Any:
    resources: dict[str, Any] = {"requests": {"memory": request, "cpu": request}}
    if limit is not None:
        resources["limits"] = {"memory": limit}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "i", "resources": resources}],
        },
        "status": {"phase": "Running"},
    }


def node_named(name: str, memory: str = "16Gi") -> Any:
    amounts = {"memory": memory, "cpu": "8", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


class Cluster:
    """A pod with an odd amount, a good one beside it, their node and what they use, as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, *objects: Any) -> str:
        path = self.folder / name
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        return str(path)

    def runs(self, amount: str, form: str) -> Iterator[tuple[str, Done]]:
        odd = stored("odd", amount, amount)
        good = stored("good", "64Mi", "128Mi")
        pods = self.write("pods.json", odd, good)
        nodes = self.write("nodes.json", node_named("n1"))
        usage = self.folder / "usage.json"
        usage.write_text(json.dumps({"shop/odd": "1Gi", "shop/good": "32Mi"}))
        output = ("-o", form)
        before = self.write("before.json", stored("odd", "64Mi"), stored("good", "64Mi", "1Gi"))
        yield "audit", memqos("audit", pods, nodes, "--usage", str(usage), *output)
        yield "fit", memqos("fit", pods, "--nodes", nodes, "--pods", pods, *output)
        yield "rank", memqos("rank", "eviction", "--pods", pods, "--usage", str(usage), *output)
        yield "explain", memqos("explain", pods, "--capacity", "16Gi", *output)
        yield "resize", memqos("resize", before, pods, "--capacity", "16Gi", *output)
        machine = ("--machine", "examples/numa/machine.yaml")
        yield "numa", memqos("numa", "admit", pods, *machine, *output)
        state = ("--namespace-state", "examples/cluster/namespace.yaml")
        yield "admit", memqos("admit", pods, *state, *output)
        tree = ("--cgroup-root", "examples/tree/cgroup", "--kubelet", "examples/tree/kubelet.yaml")
        yield "plan", memqos("plan", *tree, "--pods", pods, "--release", "1.38", *output)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("amount", [*ODD, *NEGATIVE])
def test_a_pod_with_any_amount_is_answered_for_beside_the_others(
    cluster: Cluster, amount: str, form: str
) -> None:
    for command, done in cluster.runs(amount, form):
        assert done.code in (0, 1, 2), (command, done.err)
        assert command in ("audit", "plan") or "good" in done.out, (command, done.err)
        if form == "table":
            assert max(map(len, done.out.splitlines()), default=0) < 300, command


@pytest.mark.parametrize("amount", UNREADABLE)
def test_one_that_cannot_be_read_is_reported_and_the_others_are_answered_for(
    cluster: Cluster, amount: str
) -> None:
    for command, done in cluster.runs(amount, "json"):
        if command == "plan":
            assert "shop/odd" in [each["pod"] for each in done.data["unresolved"]]
            continue
        assert done.code == 1, command
        output = done.err + (done.out if command == "audit" else "")
        assert "is not a quantity" in output, command
        assert max(map(len, done.err.splitlines()), default=0) < 300, command
        assert command == "audit" or "good" in done.out, command


@pytest.mark.parametrize("amount", UNREADABLE)
def test_a_resize_to_such_an_amount_leaves_the_plan_of_a_node_as_it_was(
    tmp_path: Path, amount: str
) -> None:
    """Until a kubelet has carried it out, the resources of the status count."""
    snapshot = json.loads((ROOT / "tests/nodes/numa.json").read_text())
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(snapshot))
    for each in snapshot["pods"]["items"]:
        each["spec"]["containers"][0]["resources"] = {"requests": {"memory": amount}}
    after.write_text(json.dumps(snapshot))
    plans = [memqos("plan", "--snapshot", str(file), "-o", "json") for file in (before, after)]
    assert plans[0].code == plans[1].code
    assert plans[0].out.replace("before.json", "after.json") == plans[1].out


@pytest.mark.parametrize("amount", HUGE)
def test_pictures_and_pages_are_drawn_all_the_same(cluster: Cluster, amount: str) -> None:
    pods = cluster.write("pods.json", stored("odd", amount, amount), stored("good", "1Gi", "2Gi"))
    picture = memqos("explain", pods, "-o", "svg", "--capacity", "16Gi")
    assert (picture.code, "good" in picture.out) == (0, True)
    page = memqos("audit", pods, cluster.write("nodes.json", node_named("n1")), "-o", "html")
    assert (page.code, "</html>" in page.out) == (0, True)


@pytest.mark.parametrize("amount", HUGE)
def test_what_overflows_fills_no_node_in_an_audit(cluster: Cluster, amount: str) -> None:
    pods = cluster.write("pods.json", stored("odd", amount), stored("good", "4Gi"))
    done = memqos("audit", pods, cluster.write("nodes.json", node_named("n1")), "-o", "json")
    (audited,) = done.data["nodes"]
    assert audited["requested"] == 4 << 30


def test_what_overflows_fills_no_node_for_the_next_pod(cluster: Cluster) -> None:
    there = cluster.write("pods.json", stored("odd", "1e999"), stored("good", "4"))
    new = cluster.write("new.json", stored("new", "2", node=None), stored("huge", "1e999"))
    done = memqos(
        "fit", new, "--nodes", cluster.write("n.json", node_named("n1")), "--pods", there, "-o",
        "json",
    )  # fmt: skip
    assert {each["name"]: each["fitting"] for each in done.data["pods"]} == {
        "pod/new": 1,
        "pod/huge": 0,
    }


@pytest.mark.parametrize("memory", ["1e999", "8Ei1", "-1", "9223372036854775808"])
def test_a_node_that_no_machine_can_be_is_reported_beside_the_others(
    cluster: Cluster, memory: str
) -> None:
    nodes = cluster.write("nodes.json", node_named("n1", memory), node_named("n2"))
    pods = cluster.write("pods.json", stored("good", "64Mi", "128Mi", "n2"))
    done = memqos("audit", nodes, pods, "-o", "json")
    assert done.code == 1
    assert "node n1" in str(done.data["faults"])
    assert [each["name"] for each in done.data["nodes"] if each["pods"]] == ["n2"]


@pytest.mark.parametrize("amount", HUGE)
@pytest.mark.parametrize("policy", ["TieredReservation", "HardReservation"])
def test_no_pod_is_protected_by_a_number_that_overflows(amount: str, policy: Reservation) -> None:
    """The scheduler places such a pod anywhere: it must not get all of a node by it."""
    plan = semantics(pod([box(amount, amount)]), node_settings("1.38", policy=policy)).plan
    assert plan is not None
    for settings in (plan.settings, plan.containers[0].settings):
        assert not settings["memory.min"].value
        assert not settings["memory.low"].value


def test_the_largest_amount_that_can_be_held_is_planned_as_it_is() -> None:
    plan = semantics(pod([box("8Ei", "8Ei")]), node_settings("1.38", policy="HardReservation")).plan
    assert plan is not None
    assert plan.settings["memory.max"].value == (1 << 63) - 1


def test_the_explanation_of_such_a_pod_names_the_overflow(cluster: Cluster) -> None:
    done = memqos("explain", cluster.write("pods.json", stored("odd", "10e399")))
    assert "1e400 of memory exceeds 2⁶³ − 1" in done.out


@pytest.mark.parametrize("amount", ["1e999", "1e19", "-1", "0"])
def test_an_option_takes_what_a_machine_can_have(cluster: Cluster, amount: str) -> None:
    done = memqos("explain", "examples/one.yaml", f"--capacity={amount}")
    assert done.code == 64
    assert f"'{amount}' is not a" in done.err


class TestReviews:
    POLICY = AdmissionPolicy(
        "memqos.io/v1alpha1",
        "AdmissionPolicy",
        on_error="refuse",
        rules=(LimitRatio(id="near", resource="memory", most=2.3),),
    )
    DOOR = PodReviewer(POLICY, Release.of("1.36"))

    @staticmethod
    def reviewed(request: str, limit: str) -> bytes:
        amounts = {"requests": {"memory": request}, "limits": {"memory": limit}}
        return review({"containers": [container(**amounts)]})

    @pytest.mark.parametrize("amount", [each for each in HUGE if len(each) < 128])
    def test_an_absurd_limit_breaks_a_rule_and_not_the_judge(self, amount: str) -> None:
        answer = self.DOOR.validate(self.reviewed("1Gi", amount))
        assert answer.status is not None
        assert (answer.allowed, answer.status.code) == (False, 403)
        assert "times its request of 1Gi; at most 2.3 times" in (answer.status.message or "")

    def test_a_limit_of_hundreds_of_digits_is_not_even_judged(self) -> None:
        answer = self.DOOR.validate(self.reviewed("1Gi", "9" * 400))
        assert answer.status is not None
        assert (answer.allowed, answer.status.code) == (False, 500)

    @pytest.mark.parametrize(
        ("requested", "limit", "allowed"),
        [
            ("10", "23", True),
            ("10", "24", False),
            ("1e999", "2.3e999", True),
            ("1e999", "2.4e999", False),
            ("1e400", "1e400", True),
        ],
    )
    def test_ratios_are_exact_however_large_the_amounts(
        self, requested: str, limit: str, allowed: bool
    ) -> None:
        assert self.DOOR.validate(self.reviewed(requested, limit)).allowed is allowed

    @pytest.mark.parametrize("amount", [*ODD, *NEGATIVE, *UNREADABLE])
    def test_every_amount_has_an_answer(self, amount: str) -> None:
        for limit in ("1Gi", amount):
            for check in (self.DOOR.validate, self.DOOR.mutate):
                assert check(self.reviewed(amount, limit)).uid
