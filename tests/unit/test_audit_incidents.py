"""An audit names pods that died, and nodes that cannot honour Memory QoS, before all else."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.builders import Json
from tests.commands import memqos

from memqos.audit import audit_objects
from memqos.audit.preflight import NodeSystem, image_with_cgroup_v1, kubelet_skew, old_runtime
from memqos.findings.finding import Finding
from memqos.release import Release
from memqos.settings.settings import Settings

SETTINGS = Settings(release=Release.of("1.36", {"MemoryQoS": True}), factor=0.9)
INCIDENT = "examples/cluster/incident.json"


def end(reason: str, code: int) -> Json:
    return {
        "terminated": {"reason": reason, "exitCode": code, "finishedAt": "2026-03-02T04:11:09Z"}
    }


def pod(
    name: str,
    *statuses: Json,
    limit: str | None = None,
    prefix: str | None = None,
    owner: str = "ReplicaSet",
    phase: str = "Running",
    **spec: Any,
) -> Json:
    names = [each["name"] for each in statuses] or ["app"]
    resources: Json = {"requests": {"memory": "64Mi"}}
    if limit is not None:
        resources["limits"] = {"memory": limit}
    metadata: Json = {"name": name, "namespace": "shop", "uid": name}
    if prefix is not None:
        metadata |= {"generateName": prefix, "ownerReferences": [{"kind": owner}]}
    containers = [{"name": each, "image": "i", "resources": resources} for each in names]
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, **spec},
        "status": {"phase": phase, "containerStatuses": list(statuses)},
    }


def status(
    name: str, restarts: int, *, now: Json | None = None, before: Json | None = None
) -> Json:
    return {"name": name, "restartCount": restarts, "state": now or {}, "lastState": before or {}}


def node(name: str, **info: str) -> Json:
    amounts = {"memory": "8Gi", "cpu": "4"}
    state = {"capacity": amounts, "allocatable": amounts, "nodeInfo": info}
    return {"kind": "Node", "metadata": {"name": name}, "status": state}


def found(*objects: Json, rule: str | None = None) -> list[Finding]:
    findings = audit_objects(objects, SETTINGS).findings
    return [each for each in findings if rule in (None, each.rule)]


class TestDeaths:
    def test_a_pod_killed_seven_times_is_the_first_thing_an_audit_shows(self) -> None:
        killed = pod("api-1", status("app", 7, before=end("OOMKilled", 137)), limit="256Mi")
        invalid = {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": []}}
        first = found(invalid, killed)[0]
        assert (first.rule, first.severity, first.where) == (
            "pod/oom-killed",
            "error",
            "shop/api-1",
        )
        assert first.evidence == (
            "one pod: app: OOMKilled with exit code 137 at 2026-03-02T04:11:09Z, "
            "likely at its limit of 256Mi",
            "7 deaths",
        )

    def test_the_summary_names_it_right_below_the_notes(self) -> None:
        lines = memqos("audit", INCIDENT).out.splitlines()
        assert lines[3] == (
            "OOM-killed: shop/api-7d4b9c6f5-* (9 deaths, at most 7 in one pod), "
            "batch/report-* (2 deaths)"
        )

    def test_a_page_has_it_too(self) -> None:
        page = memqos("audit", INCIDENT, "-o", "html").out
        headline = (
            '<p class="killed">OOM-killed: shop/api-7d4b9c6f5-* (9 deaths, at most '
            "7 in one pod), batch/report-* (2 deaths)</p></header>"
        )
        assert headline in page
        assert page.index("pod/oom-killed") < page.index("pod/tmpfs") < page.index("node/kernel")

    def test_without_a_limit_the_node_ran_out(self) -> None:
        (finding,) = found(
            pod("a", status("app", 1, before=end("OOMKilled", 137))), rule="pod/oom-killed"
        )
        assert "likely because the node ran out of memory: it has no limit" in finding.evidence[0]

    def test_a_container_that_lies_dead_counts_without_a_restart(self) -> None:
        (finding,) = found(
            pod("a", status("app", 0, now=end("OOMKilled", 137))), rule="pod/oom-killed"
        )
        assert finding.evidence[1] == "1 death"

    @pytest.mark.parametrize(
        ("restarts", "ended", "rule"),
        [
            (1, end("Error", 137), "pod/exit-137"),
            (5, end("Error", 1), "pod/restarts"),
            (4, end("Error", 1), None),
            (9, end("Completed", 0), None),
            (3, None, None),
        ],
    )
    def test_other_ends_are_told_apart(
        self, restarts: int, ended: Json | None, rule: str | None
    ) -> None:
        died = pod("a", status("app", restarts, before=ended))
        deaths = {"pod/oom-killed", "pod/exit-137", "pod/restarts", "pod/evicted"}
        assert [each.rule for each in found(died) if each.rule in deaths] == (
            [] if rule is None else [rule]
        )

    def test_of_several_containers_the_one_killed_for_memory_counts(self) -> None:
        died = pod(
            "a",
            status("noisy", 40, before=end("Error", 1)),
            status("app", 2, before=end("OOMKilled", 137)),
        )
        (finding,) = found(died, rule="pod/oom-killed")
        assert finding.evidence[0].startswith("one pod: app: OOMKilled")

    def test_an_evicted_pod_is_counted_though_it_has_ended(self) -> None:
        gone = pod("a", phase="Failed")
        gone["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory. "}
        (finding,) = found(gone, rule="pod/evicted")
        assert finding.evidence == ("one pod: the node was low on memory",)

    def test_an_init_container_that_completed_is_no_death(self) -> None:
        fine = pod("a", status("app", 0))
        fine["status"]["initContainerStatuses"] = [status("setup", 0, now=end("Completed", 0))]
        assert not found(fine, rule="pod/restarts")
        assert not found(fine, rule="pod/exit-137")


class TestCronJobs:
    def test_the_runs_of_a_cronjob_are_one_workload(self) -> None:
        runs = [
            pod(
                f"report-{minute}-x",
                status("app", 0, now=end("OOMKilled", 137)),
                prefix=f"report-{minute}-",
                owner="Job",
                phase="Failed",
            )
            for minute in (29012460, 29013900)
        ]
        (finding,) = found(*runs, rule="pod/oom-killed")
        assert finding.where == "shop/report-*"

    def test_a_replicaset_with_a_hash_of_digits_keeps_its_name(self) -> None:
        replica = pod("web-24567892-x", status("app", 1, before=end("OOMKilled", 137)),
                      prefix="web-24567892-")  # fmt: skip
        (finding,) = found(replica, rule="pod/oom-killed")
        assert finding.where == "shop/web-24567892-*"


class TestMemoryVolumes:
    @pytest.mark.parametrize(
        ("size", "limit", "evidence"),
        [
            (None, "1Gi", "volume shm has no sizeLimit"),
            ("2Gi", "1Gi", "sizeLimit of volume shm is 2Gi, the pod's limit 1Gi"),
            ("1Gi", "1Gi", None),
            ("2Gi", None, None),
        ],
    )
    def test_a_tmpfs_has_a_size_within_the_limit(
        self, size: str | None, limit: str | None, evidence: str | None
    ) -> None:
        empty: Json = {"medium": "Memory"} | ({} if size is None else {"sizeLimit": size})
        pods = pod("a", limit=limit, volumes=[{"name": "shm", "emptyDir": empty}])
        found_here = found(pods, rule="pod/tmpfs")
        assert [each.evidence for each in found_here] == (
            [] if evidence is None else [(f"one pod: {evidence}",)]
        )

    def test_a_volume_on_disk_is_none(self) -> None:
        assert not found(pod("a", volumes=[{"name": "v", "emptyDir": {}}]), rule="pod/tmpfs")


class TestAutoscalers:
    @staticmethod
    def scaler(target: str, resource: str = "memory", kind: str = "Utilization") -> Json:
        metric = {"type": "Resource", "resource": {"name": resource, "target": {"type": kind}}}
        spec = {"scaleTargetRef": {"kind": "Deployment", "name": target}, "metrics": [metric]}
        return {
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "scaler", "namespace": "shop"},
            "spec": spec,
        }

    @staticmethod
    def unrequesting() -> Json:
        bare = pod("web-5d9f-x", prefix="web-5d9f-")
        bare["spec"]["containers"][0]["resources"] = {}
        return bare

    def test_utilization_needs_a_request(self) -> None:
        (finding,) = found(self.unrequesting(), self.scaler("web"), rule="pod/hpa")
        assert (finding.where, finding.evidence) == ("shop/web-5d9f-*", ("one pod: app",))

    @pytest.mark.parametrize(
        "scaler", [("api",), ("web", "cpu"), ("web", "memory", "AverageValue")]
    )
    def test_what_does_not_divide_by_memory_is_not_named(self, scaler: tuple[str, ...]) -> None:
        assert not found(self.unrequesting(), self.scaler(*scaler), rule="pod/hpa")

    def test_a_limit_is_a_request_for_a_new_pod(self) -> None:
        limited = self.unrequesting()
        limited["spec"]["containers"][0]["resources"] = {"limits": {"memory": "1Gi"}}
        del limited["status"], limited["metadata"]["uid"]
        assert not found(limited, self.scaler("web"), rule="pod/hpa")


class TestPreflight:
    def test_an_old_node_is_named_with_each_reason(self) -> None:
        old = node(
            "old",
            kernelVersion="5.4.0-150-generic",
            containerRuntimeVersion="containerd://1.5.9",
            osImage="Ubuntu 20.04.6 LTS",
            operatingSystem="linux",
        )
        assert [(each.rule, each.severity, each.evidence[0]) for each in found(old)] == [
            ("node/kernel", "error", "kernel 5.4.0-150-generic"),
            ("node/runtime", "error", "containerd 1.5.9; 1.6 is the first that passes them on"),
            ("node/cgroup-v1", "warning", "Ubuntu 20.04.6 LTS"),
        ]

    @pytest.mark.parametrize(
        ("gate", "heading"),
        [
            ((), "would change with MemoryQoS on:"),
            (("--gate", "MemoryQoS=false"), "would change with MemoryQoS on:"),
            (("--gate", "MemoryQoS=true"), "wrong today:"),
        ],
    )
    def test_an_old_kernel_is_wrong_only_where_memory_qos_is_on(
        self, gate: tuple[str, ...], heading: str, tmp_path: Path
    ) -> None:
        old = node("old", kernelVersion="5.4.0", containerRuntimeVersion="containerd://1.5.9")
        dump = tmp_path / "dump.json"
        dump.write_bytes(msgspec.json.encode(old))
        done = memqos("audit", str(dump), *gate)
        under = done.out.split(heading)[1]
        assert "node/kernel" in under
        assert "node/runtime" in under

    def test_a_windows_node_is_judged_by_nothing_of_linux(self) -> None:
        windows = node(
            "win",
            operatingSystem="windows",
            kernelVersion="4.0.1",
            containerRuntimeVersion="containerd://1.5.0",
        )
        assert [each.rule for each in found(windows)] == ["node/os"]

    @pytest.mark.parametrize("by_node", [True, False])
    def test_a_pod_on_windows_has_no_cgroup_values(self, by_node: bool) -> None:
        settings = msgspec.structs.replace(SETTINGS, policy="TieredReservation")
        linux = pod("web", limit="128Mi", nodeName="tux")
        os: Json = {} if by_node else {"os": {"name": "windows"}}
        windows = pod("iis", limit="128Mi", nodeName="win" if by_node else "tux", **os)
        nodes = [node("win", operatingSystem="windows"), node("tux", operatingSystem="linux")]
        alone = audit_objects([linux, *nodes], settings).audit
        both = audit_objects([linux, windows, *nodes], settings)
        for measure in ("min", "low", "high"):
            assert [getattr(each, measure) for each in both.audit.nodes] == [
                getattr(each, measure) for each in alone.nodes
            ]
        assert sum(each.requested for each in both.audit.nodes) == 128 << 20

    def test_nor_in_the_rows_of_pods(self, tmp_path: Path) -> None:
        windows = pod("iis", limit="128Mi", nodeName="win")
        dump = tmp_path / "dump.json"
        dump.write_bytes(msgspec.json.encode([windows, node("win", operatingSystem="windows")]))
        (row,) = memqos("audit", str(dump), "--release", "1.36", "-o", "json").data["pods"]
        assert (row["request"], row["limit"]) == (64 << 20, 128 << 20)
        (container,) = row["containers"]
        for file in ("memory.min", "memory.low", "memory.high", "memory.max"):
            assert row[file] is container[file] is None
        assert container["oom_score_adj"] is None

    def test_a_node_that_says_nothing_is_not_blamed(self) -> None:
        assert found(node("quiet")) == []

    @pytest.mark.parametrize(
        ("runtime", "is_old"),
        [
            ("containerd://1.6.0", False),
            ("containerd://1.5.18", True),
            ("cri-o://1.21.7", True),
            ("cri-o://1.22.0", False),
            ("docker://20.10.7", False),
            ("", False),
        ],
    )
    def test_runtimes_that_drop_values(self, runtime: str, is_old: bool) -> None:
        assert (old_runtime(NodeSystem(runtime=runtime)) is not None) is is_old

    @pytest.mark.parametrize(
        ("image", "is_v1"),
        [
            ("Ubuntu 20.04.6 LTS", True),
            ("Ubuntu 22.04.4 LTS", False),
            ("Debian GNU/Linux 10 (buster)", True),
            ("Debian GNU/Linux 12 (bookworm)", False),
            ("Red Hat Enterprise Linux 8.9 (Ootpa)", True),
            ("CentOS Linux 7 (Core)", True),
            ("Amazon Linux 2", True),
            ("Amazon Linux 2023.4.20240513", False),
            ("Bottlerocket OS 1.20.0 (aws-k8s-1.29)", False),
        ],
    )
    def test_operating_systems_that_boot_with_cgroup_v1(self, image: str, is_v1: bool) -> None:
        assert (image_with_cgroup_v1(NodeSystem(image=image)) is not None) is is_v1

    @pytest.mark.parametrize(
        ("kubelet", "server", "supported"),
        [
            ("v1.36.1", 36, None),
            ("v1.33.0", 36, True),
            ("v1.32.9", 36, False),
            ("v1.37.0", 36, False),
            ("v1.25.0", 27, True),
            ("v1.24.0", 27, False),
        ],
    )
    def test_kubelets_may_be_so_much_older_and_never_newer(
        self, kubelet: str, server: int, supported: bool | None
    ) -> None:
        skew = kubelet_skew(NodeSystem(kubelet=kubelet), 99, server)
        assert (None if skew is None else skew.is_supported) is supported

    def test_in_a_dump_the_newest_kubelet_stands_for_the_api_server(self) -> None:
        nodes = [node("a", kubeletVersion="v1.36.1"), node("b", kubeletVersion="v1.35.2")]
        (finding,) = found(*nodes, rule="node/skew")
        assert (finding.where, finding.severity) == ("b", "info")
        assert finding.evidence == ("kubelet v1.35.2, the newest kubelet is 1.36", "0 pods")

    def test_scripts_read_the_software_of_nodes(self) -> None:
        data = memqos("audit", INCIDENT, "-o", "json").data
        assert [each["system"]["kubelet"] for each in data["nodes"]] == [
            "v1.36.1",
            "v1.32.4",
            "v1.36.1",
        ]


def test_objects_of_other_kinds_may_have_any_reason_and_message() -> None:
    other = {"kind": "Widget", "metadata": {"name": "w"}, "status": {"reason": {}, "message": [1]}}
    result = audit_objects([other, pod("a", status("app", 0) | {"restartCount": None})], SETTINGS)
    assert (result.faults, result.audit.pods) == ((), 1)
