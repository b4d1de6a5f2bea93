"""`memqos rank`: who goes first when memory runs out."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.commands import ROOT, Done, memqos

from memqos.plan.names import cgroup_names

PODS = "examples/cluster/pods.yaml"
USAGE = "examples/cluster/usage.json"
KUBELET = "examples/node/kubelet.yaml"
MI = 1 << 20


def pod(name: str, request: str = "", *, limit: str = "", **spec: Any) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"memory": request}} if request else {}
    if limit:
        resources["limits"] = {"memory": limit}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"nodeName": "one", "containers": containers, **spec},
        "status": {"phase": "Running"},
    }


def eviction(pods: list[dict[str, Any]], usage: object, tmp_path: Path, *options: str) -> Done:
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    (tmp_path / "usage.yaml").write_text(usage if isinstance(usage, str) else json.dumps(usage))
    files = ("--pods", str(tmp_path / "pods.yaml"), "--usage", str(tmp_path / "usage.yaml"))
    return memqos("rank", "eviction", *files, *options)


def order(done: Done) -> list[str]:
    return [each["pod"].removeprefix("default/") for each in done.data["order"]]


class TestEviction:
    def test_the_example_in_the_order_of_the_kubelet(self) -> None:
        done = memqos("rank", "eviction", "--pods", PODS, "--usage", USAGE, "--kubelet", KUBELET)
        assert done.code == 0
        places = [row for row in done.rows() if row and row[0] in ("1", "2", "3", "4", "–")]
        assert [row[1] for row in places] == [
            "shop/api-1",
            "shop/report-28",
            "kube-system/logs-x7",
            "shop/db-0",
            "shop/cache-0",
        ]
        assert places[0] == (
            [
                "1",
                "shop/api-1",
                "Burstable",
                "1000",
                "832Mi",
                "1300Mi",
                "468Mi",
                "1300Mi",
                "priority",
            ]
        )
        assert places[2][0] == "–"
        assert "critical" in places[2]

    def test_thresholds_say_how_much_is_needed(self) -> None:
        done = memqos("rank", "eviction", "--pods", PODS, "--usage", USAGE, "--kubelet", KUBELET)
        assert "memory.available (hard): 70Mi of 16Gi available, threshold 100Mi: met" in done.out
        assert "30Mi is needed: freed after 1 eviction" in done.out

    def test_need_counts_evictions_and_leaves_out_critical_pods(self) -> None:
        files = ("--pods", PODS, "--usage", USAGE)
        done = memqos("rank", "eviction", *files, "--need", "1700Mi", "-o", "json")
        assert done.data["enoughAfter"] == 3
        critical = next(each for each in done.data["order"] if each["critical"])
        assert critical["frees"] == 0
        more = memqos("rank", "eviction", *files, "--need", "100Gi")
        assert "100Gi is needed: evicting all candidates frees 6976Mi" in more.out

    def test_where_the_order_by_class_misleads_is_reported(self) -> None:
        done = memqos("rank", "eviction", "--pods", PODS, "--usage", USAGE)
        assert (
            "shop/api-1 is Burstable but goes before shop/report-28, BestEffort: "
            "its priority is lower"
        ) in done.out
        assert "shop/db-0 is Guaranteed but goes before shop/cache-0, Burstable" in done.out

    def test_nothing_is_said_of_classes_that_follow_the_documented_order(
        self, tmp_path: Path
    ) -> None:
        pods = [pod("best"), pod("burst", "1Gi")]
        done = eviction(pods, {"best": "1Gi", "burst": "1Mi"}, tmp_path)
        assert "mislead" not in done.out

    def test_the_key_between_distant_pods_is_the_first_that_differs(self, tmp_path: Path) -> None:
        # best and burst differ by use over request, the two in the middle by priority alone.
        pods = [
            pod("burst", "1Mi", priority=1),
            pod("burst-2", "1Mi", priority=2),
            pod("best", priority=0),
        ]
        usage = {"burst": "2Mi", "burst-2": "2Mi", "best": "0"}
        done = eviction(pods, usage, tmp_path, "-o", "json")
        assert order(done) == ["burst", "burst-2", "best"]
        assert {each["because"] for each in done.data["misledByClass"]} == {"over request"}

    def test_pods_without_usage_go_first_and_are_reported(self, tmp_path: Path) -> None:
        done = eviction([pod("a", "1Gi"), pod("b", "1Gi")], {"a": "2Gi"}, tmp_path)
        assert "note: no statistics of default/b: the kubelet evicts such pods first" in done.out
        first = next(row for row in done.rows() if row and row[0] == "1")
        assert first[1] == "default/b"
        assert "?" in first

    def test_usage_of_unknown_pods_is_reported(self, tmp_path: Path) -> None:
        usage = {"a": "1Gi", "x": "1Gi", "y": "1Gi", "z": "1Gi", "zz": "1Gi"}
        done = eviction([pod("a")], usage, tmp_path)
        assert (
            "usage given for unknown pods: default/x, default/y, default/z and 1 more" in done.out
        )

    def test_metrics_of_containers_are_summed_with_a_note(self, tmp_path: Path) -> None:
        usage = {
            "kind": "PodMetricsList",
            "items": [
                {
                    "metadata": {"name": "a", "namespace": "default"},
                    "containers": [{"name": "c", "usage": {"memory": "262144Ki"}}],
                }
            ],
        }
        done = eviction([pod("a", "128Mi")], usage, tmp_path)
        assert "usage is summed over containers" in done.out
        assert [
            "1",
            "default/a",
            "Burstable",
            "0",
            "128Mi",
            "256Mi",
            "128Mi",
            "256Mi",
        ] in done.rows()

    def test_all_documents_of_usage_count(self, tmp_path: Path) -> None:
        done = eviction([pod("a"), pod("b")], "a: 1Mi\n---\nb: 2Mi\n", tmp_path, "-o", "json")
        assert order(done) == ["b", "a"]
        assert "no statistics" not in done.out

    def test_pods_that_have_ended_are_skipped(self, tmp_path: Path) -> None:
        ended = pod("ended")
        ended["status"]["phase"] = "Failed"
        done = eviction([pod("a"), ended], {"a": "1Gi"}, tmp_path)
        assert "skipped: 1 pod that has ended" in done.out
        assert "default/ended" not in done.out

    def test_pods_of_several_nodes_are_refused(self, tmp_path: Path) -> None:
        done = eviction([pod("a"), pod("b", nodeName="two")], {}, tmp_path)
        assert done.code == 1
        assert "pods of 2 nodes: one, two" in done.err
        assert "--field-selector spec.nodeName=NAME" in done.err

    def test_why_tells_every_key_and_whom_the_event_names(self) -> None:
        done = memqos("rank", "eviction", "--pods", PODS, "--usage", USAGE, "--why")
        assert (
            "shop/api-1: uses 1300Mi, requests 832Mi: over request by 468Mi; priority 1000; "
            "excess 468Mi; ahead of the next by priority"
        ) in done.out
        assert "the event about shop/api-1 names api with 1200Mi" in done.out
        assert "never evicted: a static pod, or one with a system priority" in done.out

    def test_a_threshold_that_is_not_met_is_reported(self, tmp_path: Path) -> None:
        summary = json.loads((ROOT / USAGE).read_text())
        summary["node"]["memory"]["availableBytes"] = 1 << 30
        pods = list(yaml.safe_load((ROOT / PODS).read_text())["items"])
        for each in pods:
            each |= {"apiVersion": "v1", "kind": "Pod"}
        done = eviction(pods, summary, tmp_path, "--kubelet", KUBELET)
        assert "no eviction threshold is met now" in done.out
        assert "is needed" not in done.out

    def test_thresholds_without_an_observation_say_what_is_missing(self, tmp_path: Path) -> None:
        done = eviction([pod("a")], {"a": "1Gi"}, tmp_path, "--kubelet", KUBELET)
        assert "memory.available (hard): not observed" in done.out
        assert "memory.available is unknown" in done.out

    def test_a_snapshot_brings_pods_usage_thresholds_and_release(self, tmp_path: Path) -> None:
        node = json.loads((ROOT / "tests/nodes/systemd.json").read_text())
        one = node["pods"]["items"][0]
        del one["metadata"]["annotations"]["kubernetes.io/config.source"]
        path = next(path for path in node["cgroups"] if path.endswith(f"{_escaped(one)}.slice"))
        node["cgroups"][path] |= {
            "memory.current": str(100 * MI),
            "memory.stat": f"anon 1\ninactive_file {30 * MI}\n",
        }
        file = tmp_path / "node.json"
        file.write_text(json.dumps(node))
        done = memqos("rank", "eviction", "--snapshot", str(file), "-o", "json")
        found = {each["pod"]: each for each in done.data["order"]}
        assert found[f"default/{one['metadata']['name']}"]["usage"] == 70 * MI
        assert done.data["release"] == "1.38"
        (hard, _) = done.data["thresholds"]
        assert (hard["threshold"], hard["met"]) == (50 * MI, False)

    @pytest.mark.parametrize(("gate", "aside"), [("true", 512 * MI), ("false", 0)])
    def test_memory_set_aside_for_hugepages_is_not_available(
        self, tmp_path: Path, gate: str, aside: int
    ) -> None:
        node = json.loads((ROOT / "tests/nodes/systemd.json").read_text())

        def available(pages: int) -> int:
            folder = {"nr_hugepages": str(pages), "free_hugepages": str(pages)}
            node["hugepages"] = {"hugepages-2048kB": folder}
            file = tmp_path / "node.json"
            file.write_text(json.dumps(node))
            option = f"HugepageAwareEviction={gate}"
            done = memqos(
                "rank", "eviction", "--snapshot", str(file), "--gate", option, "-o", "json"
            )
            found: int = done.data["thresholds"][0]["available"]
            return found

        assert available(0) - available(256) == aside

    def test_a_snapshot_without_usage_says_so(self) -> None:
        done = memqos("rank", "eviction", "--snapshot", "tests/nodes/systemd.json")
        assert "the snapshot has no memory.current of pods" in done.out
        assert done.code == 0

    @pytest.mark.parametrize(
        ("usage", "says"),
        [
            ("kind: Pod\n", "a Pod has no usage of pods"),
            ("a: [1]\n", "usage.yaml:1:1: a: expected a string, got a list"),
            ("", "no document"),
            ("- 1\n", "the document is a list"),
        ],
    )
    def test_usage_that_cannot_be_read_is_refused(
        self, usage: str, says: str, tmp_path: Path
    ) -> None:
        done = eviction([pod("a")], usage, tmp_path)
        assert done.code == 1
        assert done.out == ""
        assert says in done.err

    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["--pods", PODS],
            ["--usage", USAGE],
            ["--pods", PODS, "--usage", USAGE, "--snapshot", "tests/nodes/systemd.json"],
            ["--pods", PODS, "--usage", USAGE, "--need", "-1"],
        ],
    )
    def test_wrong_usage_exits_with_64(self, arguments: list[str]) -> None:
        assert memqos("rank", "eviction", *arguments).code == 64

    @pytest.mark.parametrize("file", ["examples/one.yaml", "examples/cluster/usage.json"])
    def test_what_is_no_snapshot_is_refused(self, file: str) -> None:
        done = memqos("rank", "eviction", "--snapshot", file)
        assert done.code == 1
        assert "not a snapshot of a node" in done.err


def _escaped(pod: dict[str, Any]) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid.replace("-", "_")


PROCESSES = [
    {"comm": "db", "pid": 10, "oom_score_adj": -997, "rss": 6 << 30},
    {"comm": "web", "pid": 11, "oom_score_adj": 900, "rss": 100 * MI, "cgroup": "/kubepods/podabc"},
    {"comm": "idle", "pid": 12, "oom_score_adj": 1000, "rss": MI},
    {"comm": "kubelet", "pid": 13, "oom_score_adj": -1000, "rss": 100 * MI},
]


def oom(processes: object, tmp_path: Path, *options: str) -> Done:
    file = tmp_path / "processes.json"
    file.write_text(processes if isinstance(processes, str) else json.dumps(processes))
    return memqos("rank", "oom", "--from", str(file), *options)


class TestOom:
    def test_the_order_of_a_file(self, tmp_path: Path) -> None:
        done = oom(PROCESSES, tmp_path, "--total", "16Gi")
        assert done.code == 0
        places = [row for row in done.rows() if row and row[0] in ("1", "2", "3")]
        assert [row[1] for row in places] == ["idle", "web", "db"]
        assert "never killed: 1 with oom_score_adj −1000" in done.out

    def test_a_process_is_named_by_the_pod_of_its_cgroup(self, tmp_path: Path) -> None:
        done = oom(PROCESSES, tmp_path, "--total", "16Gi", "-o", "json")
        web = next(each for each in done.data["processes"] if each["comm"] == "web")
        assert web["pod"] == "pod abc"
        assert web["qosClass"] == "Guaranteed"

    def test_pods_give_names_to_uids(self, tmp_path: Path) -> None:
        named = pod("shop-web")
        named["metadata"]["uid"] = "abc"
        (tmp_path / "pods.yaml").write_text(yaml.safe_dump(named))
        pods = ("--pods", str(tmp_path / "pods.yaml"))
        done = oom(PROCESSES, tmp_path, "--total", "16Gi", *pods)
        assert "default/shop-web (Guaranteed)" in done.out

    def test_why_shows_the_arithmetic(self, tmp_path: Path) -> None:
        done = oom(PROCESSES, tmp_path, "--total", "16Gi", "--why")
        for line in (
            "RAM and swap 16Gi = 4,194,304 pages of 4096; a thousandth is 4,194 pages",
            "2. web (11): rss 100Mi + swap 0 + page tables 0 = 25,600; "
            "900 × 4,194 = 3,774,600; together 3,800,200 pages",
            "3. db (10): rss 6Gi + swap 0 + page tables 0 = 1,572,864; "
            "−997 × 4,194 = −4,181,418; together −2,608,554 pages",
        ):
            assert line in done.out

    def test_what_is_written_can_be_read_again(self, tmp_path: Path) -> None:
        first = oom(PROCESSES, tmp_path, "--total", "16Gi", "-o", "json").data
        again = oom({**first, "memory": 16 << 30}, tmp_path, "-o", "json").data
        assert again["processes"] == first["processes"]

    def test_processes_that_die_together_are_reported(self, tmp_path: Path) -> None:
        group = {"oom_group": "/kubepods/podabc/c", "cgroup": "/kubepods/podabc/c"}
        processes = [
            {"comm": "main", "pid": 5, "oom_score_adj": 900, "rss": MI, **group},
            {"comm": "helper", "pid": 6, "oom_score_adj": 0, "rss": MI, **group},
            {"comm": "other", "pid": 7, "oom_score_adj": 100, "rss": MI},
        ]
        done = oom(processes, tmp_path, "--total", "16Gi", "--why")
        assert "+ 1 with it" in done.out
        assert "memory.oom.group is set on pod abc c: helper (6) with it" in done.out
        data = oom(processes, tmp_path, "--total", "16Gi", "-o", "json").data
        assert [(each["place"], each["comm"]) for each in data["processes"]] == [
            (1, "main"),
            (1, "helper"),
            (2, "other"),
        ]

    def test_without_a_total_nothing_is_ranked(self, tmp_path: Path) -> None:
        done = oom(PROCESSES, tmp_path)
        assert done.code == 1
        assert "the memory of the machine is unknown – give --total" in done.err

    @pytest.mark.parametrize(
        "text", ["", "{}", "[1]", '[{"comm": "x"}]', '[{"comm": 1, "oom_score_adj": 0}]', "\xff"]
    )
    def test_a_file_that_holds_no_processes_is_refused(self, text: str, tmp_path: Path) -> None:
        done = oom(text or " ", tmp_path, "--total", "1Gi")
        assert done.code == 1
        assert "processes.json: not a list of processes" in done.err
        assert done.out == ""

    def test_a_snapshot_names_its_containers(self) -> None:
        done = memqos("rank", "oom", "--snapshot", "tests/nodes/systemd.json")
        assert done.code == 0
        first = next(row for row in done.rows() if row and row[0] == "1")
        assert first[1:5] == ["sleep", "default/p1-node1", "c1", "(BestEffort)"]
        assert "memory of the processes is unknown" in done.out
        assert "67 kernel threads" in done.out

    def test_sandboxes_are_told_apart(self) -> None:
        done = memqos("rank", "oom", "--snapshot", "tests/nodes/systemd.json", "-o", "json")
        lowest = [each for each in done.data["processes"] if each["oom_score_adj"] == -998]
        assert {each["container"] for each in lowest} == {"(sandbox)"}

    def test_this_machine_is_read_by_default(self) -> None:
        done = memqos("rank", "oom", "-o", "json")
        assert done.code == 0
        own = next(each for each in done.data["processes"] if each.get("pid") == os.getpid())
        assert own["rss"] > MI
        points = [each["points"] for each in done.data["processes"] if "points" in each]
        assert len(points) > 0

    def test_the_kernel_shows_the_same_score(self) -> None:
        processes = memqos("rank", "oom", "-o", "json").data["processes"]
        own = next(each for each in processes if each.get("pid") == os.getpid())
        shown = int(Path("/proc/self/oom_score").read_text())
        # Of 2000 steps; a test run may grow between two looks.
        assert abs(shown - own["oom_score"]) <= 2

    def test_wrong_usage_exits_with_64(self) -> None:
        both = ("--from", "a", "--snapshot", "b")
        assert memqos("rank", "oom", *both).code == 64
        assert memqos("rank", "nothing").code == 64


def test_both_rankings_are_listed() -> None:
    done = memqos("rank", "--help")
    assert "eviction" in done.out
    assert "oom" in done.out


SOFT = "examples/node/kubelet-eviction.yaml"


def test_a_simulation_goes_on_until_the_pressure_ends() -> None:
    done = memqos(
        "rank", "eviction", "--pods", PODS, "--usage", USAGE, "--kubelet", SOFT, "--simulate"
    )
    assert done.code == 0
    assert done.out.partition("If usage of the")[2] == (
        " pods stays the same:\n"
        "after       available  condition\n"
        "now         70Mi       MemoryPressure  evicts shop/api-1 for memory.available (hard), "
        "grace period 1 s: frees 1300Mi\n"
        "1 s         1370Mi     MemoryPressure  the soft threshold is met: evicts after 1 min 30 "
        "s\n"
        "1 min 31 s  1370Mi     MemoryPressure  evicts shop/report-28 for memory.available (soft), "
        "grace period 20 s: frees 300Mi\n"
        "1 min 51 s  1670Mi     MemoryPressure  evicts shop/db-0 for memory.available (soft), "
        "grace period 20 s: frees 3.75Gi\n"
        "2 min 11 s  5510Mi     MemoryPressure  no threshold is met; the condition stays for the "
        "transition period\n"
        "6 min 51 s  5510Mi     –               no pressure\n"
    )


def test_a_simulation_ends_where_no_pod_is_left_to_evict(tmp_path: Path) -> None:
    pods = [pod("a", "1Mi"), pod("b", "1Mi", priority=2_000_000_000)]
    usage = {"a": "20Mi", "b": "1Gi"}
    done = eviction(pods, usage, tmp_path, "--simulate", "--available", "10Mi")
    assert done.out.splitlines()[-3:] == [
        "now    10Mi       MemoryPressure  evicts default/a for memory.available (hard), "
        "grace period 1 s: frees 20Mi",
        "1 s    30Mi       MemoryPressure  the threshold is still met",
        "no pod is left to evict: the kernel OOM-kills next (memqos rank oom)",
    ]
    steps = eviction(pods, usage, tmp_path, "--simulate", "--available", "10Mi", "-o", "json").data
    assert [step["evicted"] for step in steps["simulation"]] == ["default/a", None]
    assert steps["simulation"][1]["met"] == ["memory.available (hard)"]


def test_a_hard_eviction_gave_pods_their_own_grace_period_until_1_30(tmp_path: Path) -> None:
    pods = [pod("a", "1Mi", terminationGracePeriodSeconds=45), pod("b", "1Gi")]
    arguments = ("--simulate", "--available", "10Mi", "-o", "json", "--release")
    ended = [
        eviction(pods, {"a": "1Gi", "b": "1Mi"}, tmp_path, *arguments, release).data["simulation"][
            1
        ]["afterSeconds"]
        for release in ("1.30", "1.31")
    ]
    assert ended == [45, 1]


def test_a_share_of_the_memory_of_an_unknown_node_is_no_threshold(tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "evictionHard: {memory.available: 5%}\n"
    )
    options = ("--available", "50Mi", "--kubelet", str(kubelet))
    done = eviction([pod("a")], {"a": "760Mi"}, tmp_path, *options)
    assert done.code == 1
    assert "memory.available is a share of the node's memory, which is unknown" in done.err
    kubelet.write_text(kubelet.read_text().replace("5%", "100Mi"))
    done = eviction([pod("a")], {"a": "760Mi"}, tmp_path, *options)
    assert "memory.available (hard): 50Mi available, threshold 100Mi: met" in done.out


def test_nothing_is_simulated_without_knowing_what_is_available(tmp_path: Path) -> None:
    done = eviction([pod("a")], {"a": "1Mi"}, tmp_path, "--simulate")
    assert (done.code, done.err) == (
        1,
        "memqos: memory.available is unknown – give a /stats/summary as --usage, a snapshot, or "
        "--available\n",
    )


def test_a_new_pod_is_admitted_or_refused_under_the_pressure_there_is_now() -> None:
    arguments = ("rank", "eviction", "--pods", PODS, "--usage", USAGE, "--admit", PODS)
    done = memqos(*arguments)
    assert done.code == 2
    assert done.out.partition("The kubelet, ")[2] == (
        "under MemoryPressure:\n"
        "new pod        class\n"
        "pod/api-1      Burstable   admitted           it is not BestEffort, and only memory is "
        "under pressure\n"
        "pod/db-0       Guaranteed  admitted           it is not BestEffort, and only memory is "
        "under pressure\n"
        "pod/cache-0    Burstable   admitted           it is not BestEffort, and only memory is "
        "under pressure\n"
        "pod/report-28  BestEffort  refused (Evicted)  BestEffort under memory pressure – "
        "request memory\n"
        "pod/logs-x7    Burstable   admitted           it is critical: a static pod, or one with a "
        "system priority\n"
    )
    relaxed = memqos(*arguments, "--available", "1Gi", "-o", "json")
    assert relaxed.code == 0
    assert relaxed.data["conditions"] == []
    assert {each["because"] for each in relaxed.data["admission"]} == {"no pressure"}


def test_the_usage_of_a_pod_without_a_class_is_where_the_kubelets_gates_put_it(
    tmp_path: Path,
) -> None:
    """Its pod-level resources make it Guaranteed, to a kubelet that knows them."""
    node = json.loads((ROOT / "tests/nodes/k134-on.json").read_text())
    node["kubelet_configuration"] = node["kubelet_configuration"].replace(
        "featureGates:\n", "featureGates:\n  PodLevelResources: false\n"
    )
    made = pod("alone")
    amounts = {"cpu": "1", "memory": "1Gi"}
    made["spec"]["resources"] = {"requests": amounts, "limits": amounts}
    uid = made["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    node["pods"]["items"] = [made]
    path = cgroup_names("systemd").pod(uid, "BestEffort")
    node["cgroups"][path] = {"memory.current": str(64 * MI)}
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    done = memqos("rank", "eviction", "--snapshot", str(file), "-o", "json")
    assert [each["usage"] for each in done.data["order"]] == [64 * MI]
