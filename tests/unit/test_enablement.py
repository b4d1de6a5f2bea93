"""Is Memory QoS on here? Every answer says so, and why."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.commands import ROOT, memqos

from memqos.settings.facts import NodeFacts, RawKubeletConfig
from memqos.settings.resolver import resolve
from memqos.settings.settings import SettingsOptions

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
    - {name: c, image: i, resources: {requests: {memory: 256Mi}, limits: {memory: 1Gi}}}
"""
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  capacity: {memory: 8Gi, cpu: "4", pods: "110"}
  allocatable: {memory: 7Gi, cpu: "4", pods: "110"}
  nodeInfo: {kubeletVersion: v1.34.1}
"""
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
featureGates: {MemoryQoS: %s}
"""


@pytest.fixture
def node(tmp_path: Path) -> str:
    file = tmp_path / "node.yaml"
    file.write_text(NODE)
    return str(file)


@pytest.fixture
def kubelet(tmp_path: Path) -> str:
    file = tmp_path / "kubelet.yaml"
    file.write_text(KUBELET % "true")
    return str(file)


class TestAFileAlone:
    def test_is_shown_with_the_gate_on_and_off(self) -> None:
        done = memqos("explain", "-", stdin=POD)
        assert done.out.splitlines() == [
            "Kubernetes 1.36 · MemoryQoS as if on · policy None · factor 0.9 · no node given",
            "MemoryQoS is shown as if on: no kubelet is known; by default it is off in 1.36 "
            "(alpha)",
            "",
            "pod/web  Burstable",
            "                          memory.                          oom_    cpu.",
            "          request  limit      min  low     high  max  score_adj  weight  max",
            "pod  on     256Mi    1Gi        –    –        –  1Gi                  1    –",
            "     off                        –    –        –",
            "└ c  on     256Mi    1Gi        0    0  947.2Mi  1Gi    --node?       1  max",
            "     off                        –    –        –",
        ]

    def test_fits_a_terminal_of_80_columns(self) -> None:
        rows = memqos("explain", "-", stdin=POD).out.splitlines()[4:]
        assert max(map(len, rows)) <= 80

    def test_has_the_values_of_both_in_json(self) -> None:
        data = memqos(
            "explain", "-", "--release", "1.37", "--factor", "0.9", "-o", "json", stdin=POD
        )
        assert data.data["enablement"] == {
            "state": "as if on",
            "source": "release default",
            "sentence": "MemoryQoS is shown as if on: no kubelet is known; by default it is on in "
            "1.37 (beta)",
        }
        (pod,) = data.data["pods"]
        both = pod["by_enablement"]
        assert both["on"] == {"pod": pod["pod"], "containers": pod["containers"]}
        (on,), (off,) = both["on"]["containers"], both["off"]["containers"]
        assert on["values"]["memory.high"] == 993210368
        assert off["values"]["memory.high"] == "max"
        assert on["values"]["memory.max"] == off["values"]["memory.max"]

    def test_is_drawn_twice(self) -> None:
        text = memqos("explain", "-", "-o", "svg", stdin=POD).out
        ET.fromstring(text)
        assert "MemoryQoS as if on" in text
        assert "MemoryQoS off" in text

    def test_says_why_nothing_is_written_while_the_gate_is_off(self) -> None:
        lines = memqos("explain", "-", "--why", stdin=POD).out.splitlines()
        start = lines.index("why pod/web, with MemoryQoS off")
        assert lines[start + 1 : start + 6] == [
            "  pod",
            "    memory.min, memory.low, memory.high  not written",
            "      MemoryQoS is off, so the kubelet writes nothing here",
            "      rule gate-off (kubelet 1.22–1.38)",
            "      KEP-2570 says that memory.min and memory.high are reset when the gate is turned "
            "off; kubelet 1.22–1.36 resets nothing, and 1.37 memory.high of containers and the "
            "protection above pods alone",
        ]

    def test_is_compared_as_if_on_which_is_said_of_each_release(self) -> None:
        done = memqos("explain", "-", "--compare", "1.34,1.37", stdin=POD)
        assert done.out.splitlines()[:4] == [
            "Kubernetes 1.34 · MemoryQoS as if on · hard reservation · factor 0.9 · no node given",
            "Kubernetes 1.37 · MemoryQoS as if on · policy None · no throttling factor · no node "
            "given",
            "MemoryQoS is shown as if on: no kubelet is known; by default it is off in 1.34 "
            "(alpha)",
            "MemoryQoS is shown as if on: no kubelet is known; by default it is on in 1.37 (beta)",
        ]
        assert done.out.splitlines()[4:] == [
            "",
            "pod/web  5 of 22 values differ",
            "                                 1.34       1.37",
            "   class                    Burstable  Burstable",
            "≠  pod memory.min      on       256Mi          –",
            "   pod memory.min      off          –          –",
            "   pod memory.low      on           –          –",
            "   pod memory.low      off          –          –",
            "   pod memory.high     on           –          –",
            "   pod memory.high     off          –          –",
            "   pod memory.max                 1Gi        1Gi",
            "   pod cpu.weight                   1          1",
            "   pod cpu.max                      –          –",
            "≠  c memory.min        on       256Mi          0",
            "   c memory.min        off          –          –",
            "≠  c memory.low        on           –          0",
            "   c memory.low        off          –          –",
            "≠  c memory.high       on     947.2Mi          –",
            "≠  c memory.high       off          –        max",
            "   c memory.max                   1Gi        1Gi",
            "   c memory.swap.max                0          0",
            "   c memory.oom.group               1          1",
            "   c cpu.weight                     1          1",
            "   c cpu.max                      max        max",
            "   c oom_score_adj            --node?    --node?",
        ]
        data = memqos("explain", "-", "--compare", "1.34,1.37", "-o", "json", stdin=POD).data
        assert {each["state"] for each in data["enablement"].values()} == {"as if on"}
        (high,) = [v for v in data["pods"][0]["values"] if v["value"] == "c memory.high"]
        assert high["by_enablement"] == {
            "on": {"1.34": 993210368, "1.37": None},
            "off": {"1.34": None, "1.37": "max"},
        }
        assert high["by_release"] == high["by_enablement"]["on"]

    def test_is_resized_with_the_gate_on_and_off(self, tmp_path: Path) -> None:
        old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
        old.write_text(POD)
        new.write_text(POD.replace("1Gi", "2Gi"))
        done = memqos("resize", str(old), str(new), "--release", "1.34")
        assert done.out.splitlines() == [
            "Kubernetes 1.34 · MemoryQoS as if on · hard reservation · factor 0.9 · no node given",
            "MemoryQoS is shown as if on: no kubelet is known; by default it is off in 1.34 "
            "(alpha)",
            "",
            "pod/web  can be resized · stays Burstable",
            "                        before    after",
            "pod  memory.max            1Gi      2Gi",
            "c    memory.high  on   947.2Mi  1.825Gi",
            "                  off        –        –",
            "     memory.max            1Gi      2Gi",
            "  note: OLD has no status: it is treated as just created",
        ]
        (pod,) = memqos("resize", str(old), str(new), "--release", "1.34", "-o", "json").data[
            "pods"
        ]
        assert pod["by_enablement"]["on"] == pod["changes"]
        assert {"cgroup": "c", "file": "memory.high", "before": None, "after": None} in pod[
            "by_enablement"
        ]["off"]


class TestAnApiServerOfAnotherRelease:
    def test_stores_the_pod_and_the_kubelet_of_the_node_decides_the_values(self, node: str) -> None:
        done = memqos(
            "explain", "-", "--node", node, "--release", "1.37", "--gate", "MemoryQoS=true",
            stdin=POD,
        )  # fmt: skip
        assert done.out.splitlines() == [
            "Kubernetes 1.34 · MemoryQoS on · hard reservation · factor 0.9 · node of 8Gi, 7268Mi "
            "allocatable",
            "MemoryQoS is on: stated as MemoryQoS=true",
            "note: the release is that of the Node's kubelet, v1.34.1",
            "note: allocatable is the Node's plus an eviction threshold of 100Mi, the default: "
            "--kubelet makes it exact",
            "note: API server 1.37 sets defaults and validates "
            "pods; the values are those of the node's kubelet, v1.34.1",
            "",
            "pod/web  Burstable",
            "                     memory.                          oom_    cpu.",
            "     request  limit      min  low     high  max  score_adj  weight  max",
            "pod    256Mi    1Gi    256Mi    –        –  1Gi                  1    –",
            "└ c    256Mi    1Gi    256Mi    –  947.2Mi  1Gi        969       1  max",
        ]

    def test_too_far_apart_is_said(self, node: str) -> None:
        done = memqos("explain", "-", "--node", node, "--release", "1.38", stdin=POD)
        assert "v1.34.1, a skew that Kubernetes does not support" in done.out

    def test_is_no_skew_where_the_releases_are_the_same(self, node: str) -> None:
        done = memqos("explain", "-", "--node", node, "--release", "1.34", stdin=POD)
        assert "API server" not in done.out


class TestWithANode:
    def test_what_holds_is_shown(self, node: str) -> None:
        done = memqos("explain", "-", "--node", node, stdin=POD)
        assert done.out.splitlines() == [
            "Kubernetes 1.34 · MemoryQoS off · node of 8Gi, 7268Mi allocatable",
            "MemoryQoS is off: the default of 1.34, and no kubelet configuration is known",
            "note: the release is that of the Node's kubelet, v1.34.1",
            "note: allocatable is the Node's plus an eviction threshold of 100Mi, the default: "
            "--kubelet makes it exact",
            "",
            "pod/web  Burstable",
            "                     memory.                       oom_    cpu.",
            "     request  limit      min  low  high  max  score_adj  weight  max",
            "pod    256Mi    1Gi        –    –     –  1Gi                  1    –",
            "└ c    256Mi    1Gi        –    –     –  1Gi        969       1  max",
        ]
        assert (
            "by_enablement"
            not in memqos("explain", "-", "--node", node, "-o", "json", stdin=POD).out
        )

    def test_a_stated_gate_comes_first(self, node: str) -> None:
        done = memqos("explain", "-", "--node", node, "--gate", "MemoryQoS=true", stdin=POD)
        assert done.out.splitlines()[:2] == [
            "Kubernetes 1.34 · MemoryQoS on · hard reservation · factor 0.9 · node of 8Gi, 7268Mi "
            "allocatable",
            "MemoryQoS is on: stated as MemoryQoS=true",
        ]

    def test_the_kubelets_file_says_so(self, node: str, kubelet: str) -> None:
        done = memqos("explain", "-", "--node", node, "--kubelet", kubelet, stdin=POD)
        assert f"MemoryQoS is on: kubelet configuration {kubelet} has MemoryQoS=true" in done.out

    def test_resize_says_it_too(self, node: str) -> None:
        done = memqos(
            "resize", "examples/one.yaml", "examples/cluster/web-larger.yaml", "--node", node
        )
        assert "MemoryQoS is off: the default of 1.34" in done.out
        assert "memory.high" not in done.out


class TestSources:
    """Where the state comes from, by name."""

    @pytest.mark.parametrize(
        ("gates", "state"),
        [({"MemoryQoS": True}, "on"), ({"MemoryQoS": False}, "off"), ({"AllAlpha": True}, "on")],
    )
    def test_what_is_stated(self, gates: dict[str, bool], state: str) -> None:
        found = resolve(NodeFacts(), SettingsOptions(release="1.36", gates=gates)).enablement
        assert (found.state, found.source) == (state, "stated")

    def test_the_running_kubelets_own_answer(self) -> None:
        config = RawKubeletConfig("https://node:10250/configz", (KUBELET % "true").encode())
        found = resolve(NodeFacts(version="v1.36.1", configuration=config), SettingsOptions())
        assert (found.enablement.state, found.enablement.source) == ("on", "configz")
        assert str(found.enablement) == (
            "MemoryQoS is on: the running kubelet has MemoryQoS=true, by https://node:10250/configz"
        )

    def test_a_flag_of_its_process(self) -> None:
        config = RawKubeletConfig(
            "the flags", (KUBELET % "true").encode(), flag_gates=("MemoryQoS",)
        )
        found = resolve(NodeFacts(version="v1.36.1", configuration=config), SettingsOptions())
        assert found.enablement.source == "flag"
        assert str(found.enablement) == (
            "MemoryQoS is on: the running kubelet has --feature-gates=MemoryQoS=true"
        )

    def test_a_switch_of_another_stage_is_not_blamed(self) -> None:
        options = SettingsOptions(release="1.37", gates={"AllAlpha": False})
        found = resolve(NodeFacts(), options).enablement
        assert (found.state, found.source) == ("on", "release default")

    def test_nothing_is_assumed_of_a_cluster(self) -> None:
        options = SettingsOptions(assume_gate_on=True)
        found = resolve(NodeFacts(server_version="v1.34.2"), options).enablement
        assert (found.state, found.source) == ("off", "release default")


class TestPlanAndDoctor:
    NODE = str(ROOT / "tests/nodes/k134-on.json")

    def test_plan_says_that_it_is_on_and_why(self) -> None:
        done = memqos("plan", "--snapshot", self.NODE)
        assert done.out.splitlines()[1] == (
            f"MemoryQoS is on: kubelet configuration {self.NODE} (kubelet_configuration) has "
            "MemoryQoS=true"
        )
        data = memqos("plan", "--snapshot", self.NODE, "-o", "json").data
        assert (data["enablement"]["state"], data["enablement"]["source"]) == ("on", "kubelet file")

    def test_a_plan_with_the_gate_off_names_no_policy_and_no_factor(self) -> None:
        done = memqos("plan", "--snapshot", self.NODE, "--gate", "MemoryQoS=false")
        header = done.out.splitlines()[:2]
        assert header[0].startswith("Kubernetes 1.34 · MemoryQoS off · node of ")
        assert header[1] == "MemoryQoS is off: stated as MemoryQoS=false"

    def test_doctor_says_it_first(self) -> None:
        done = memqos("doctor", "--snapshot", self.NODE)
        assert done.out.startswith("MemoryQoS is on: kubelet configuration ")
        off = memqos("doctor", "--snapshot", self.NODE, "--gate", "MemoryQoS=false", "-o", "json")
        assert off.data["enablement"]["state"] == "off"


class TestAudit:
    DUMP = ("examples/cluster/dump.json", "--usage", "examples/cluster/metrics.json")

    def test_what_is_wrong_today_is_apart_from_what_would_change(self) -> None:
        lines = memqos("audit", *self.DUMP).out.splitlines()
        assert lines[1] == (
            "MemoryQoS is shown as if on: off today, the default of 1.36, and no kubelet "
            "configuration is known"
        )
        today, later = lines.index("wrong today:"), lines.index("would change with MemoryQoS on:")
        rules = {number: line.split()[1] for number, line in enumerate(lines) if "place" in line}
        assert {rule for number, rule in rules.items() if number > later} == {"pod/throttled"}
        assert "namespace/quota" in {rules[number] for number in rules if today < number < later}

    def test_each_finding_says_when_in_json(self) -> None:
        data = memqos("audit", *self.DUMP, "-o", "json").data
        assert data["enablement"]["state"] == "as if on"
        when = {finding["rule"]: finding["when"] for finding in data["findings"]}
        assert when["pod/throttled"] == "MemoryQoS on"
        assert when["namespace/quota"] == "today"

    def test_where_it_is_on_all_is_wrong_today(self, kubelet: str) -> None:
        done = memqos("audit", *self.DUMP, "--kubelet", kubelet)
        assert "would change" not in done.out
        assert "pod/throttled" in done.out

    def test_where_it_is_turned_off_nothing_would_be_throttled(self, tmp_path: Path) -> None:
        file = tmp_path / "kubelet.yaml"
        file.write_text(KUBELET % "false")
        done = memqos("audit", *self.DUMP, "--kubelet", str(file))
        assert done.out.splitlines()[0].endswith("Kubernetes 1.36 · MemoryQoS off")
        assert "pod/throttled" not in done.out

    def test_the_page_says_it(self) -> None:
        page = memqos("audit", *self.DUMP, "-o", "html").out
        assert "MemoryQoS as if on" in page
        assert page.index("Wrong today") < page.index("Would change with MemoryQoS on")


def test_a_gate_is_named_as_it_was_typed() -> None:
    gate = "PodLevelResourcesFixUpdateDefaulting"
    done = memqos("explain", "-", "--gate", f"{gate}=true", "--release", "1.36", stdin=POD)
    assert done.code == 1
    assert done.err == (
        f"memqos: Kubernetes 1.36 has no feature gate {gate} (which is called "
        "PodLevelResourcesFixDefaulting) – it exists since 1.37\n"
    )


def test_the_library_gives_what_the_command_shows() -> None:
    import msgspec

    import memqos as library

    manifest = json.loads(memqos("explain", "-", "-o", "json", stdin=POD).out)["pods"][0]
    pod = msgspec.yaml.decode(POD.encode(), type=library.Pod)
    for gates, state in (({}, "off"), ({"MemoryQoS": True}, "on")):
        settings = library.Settings(library.Release.of("1.36", gates), factor=0.9)
        plan = library.semantics(pod, settings).plan
        assert plan is not None
        (shown,) = manifest["by_enablement"][state]["containers"]
        assert plan.containers[0].settings["memory.high"].value == shown["values"]["memory.high"]
