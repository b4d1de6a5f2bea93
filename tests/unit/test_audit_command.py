"""`memqos audit` and `memqos rules`, as a shell runs them."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.commands import ROOT, memqos
from tests.eventually import PATIENCE

from memqos import __version__

DUMP = "examples/cluster/dump.json"
METRICS = "examples/cluster/metrics.json"

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def audit(*arguments: str) -> Any:
    return memqos("audit", DUMP, "-o", "json", *arguments).data


def written(folder: Path, objects: list[Any]) -> str:
    file = folder / "dump.ndjson"
    file.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return str(file)


def objects() -> list[Any]:
    items = json.loads((ROOT / DUMP).read_text())["items"]
    assert isinstance(items, list)
    return items


def test_the_data_counts_and_lists_pods_nodes_and_findings() -> None:
    data = audit("--usage", METRICS, "--policy", "TieredReservation")
    assert {name: data["counts"][name] for name in ("pods", "nodes", "namespaces")} == {
        "pods": 12,
        "nodes": 3,
        "namespaces": 3,
    }
    for name in ("pods", "nodes", "findings", "namespaces", "faults"):
        assert len(data[name]) == data["counts"][name]
    pods = {pod["name"]: pod for pod in data["pods"]}
    web = pods["web-6d9f7c-x2k4p"]
    assert (web["class"], web["valid"], web["node"]) == ("Burstable", True, "worker-1")
    assert web["throttled"] == ["web"]
    container = web["containers"][0]
    assert container["memory.max"] == 1 << 30
    assert container["memory.low"] == 512 << 20
    assert container["memory.high"] == int((512 + 512 * 0.9) * (1 << 20)) // 4096 * 4096
    assert container["oom_score_adj"] == 1000 - 1000 * 512 // 8192
    assert pods["db-0"]["memory.min"] == 4 << 30


def test_the_numbers_of_a_pod_are_those_explain_has(tmp_path: Path) -> None:
    one = tmp_path / "pod.json"
    for item in objects():
        if item["kind"] != "Pod":
            continue
        one.write_text(json.dumps(item))
        node = next(
            each for each in objects() if each["metadata"]["name"] == item["spec"]["nodeName"]
        )
        (tmp_path / "node.json").write_text(json.dumps(node))
        flags = ("--policy", "TieredReservation", "--release", "1.36")
        explained = memqos(
            *("explain", str(one), "--node", str(tmp_path / "node.json"), "-o", "json", *flags),
            *("--gate", "MemoryQoS=true"),
        ).data["pods"][0]
        audited = next(
            pod for pod in audit(*flags)["pods"] if pod["name"] == item["metadata"]["name"]
        )
        files = ("memory.min", "memory.low", "memory.high", "memory.max")
        assert [audited[file] for file in files] == [explained["pod"][file] for file in files]
        for own, other in zip(audited["containers"], explained["containers"], strict=True):
            assert own["name"] == other["name"]
            for file in (*files, "oom_score_adj"):
                assert own[file] == other["values"][file]


def test_the_summary_names_who_stands_out() -> None:
    done = memqos("audit", DUMP, "--usage", METRICS, "--policy", "TieredReservation")
    assert done.code == 0
    for text in (
        "12 pods on 3 nodes in 3 namespaces · Kubernetes 1.36 · MemoryQoS as if on · "
        "policy TieredReservation",
        "Guaranteed  ████",
        "evicted first on worker-2: batch/report-28391",
        "warning  pod/throttled  1 place",
        "shop: memory: requests.memory 11.74Gi of 12Gi, 98%",
    ):
        assert text in done.out


def test_without_usage_the_fullest_node_is_the_one_with_an_order_of_kills() -> None:
    assert "killed first on worker-1: monitoring/agent-aa1" in memqos("audit", DUMP).out


def test_a_release_without_policies_reserves_every_request() -> None:
    done = memqos("audit", DUMP, "--release", "1.34", "--compare", "release=1.38")
    assert "Kubernetes 1.34 · MemoryQoS as if on · hard reservation · factor 0.9" in done.out
    assert "compared with: Kubernetes 1.38 · MemoryQoS on · policy None" in done.out
    assert "memory.min                     13.69Gi        0  −13.69Gi" in done.out


def test_a_dump_that_cannot_be_read_is_compared_with_nothing() -> None:
    done = memqos("audit", DUMP, "--compare", "1.38")
    assert done.code == 1
    assert "compared with" not in done.out
    assert "1.38: no such file or directory" in done.err
    assert "1.38: nothing to compare with – give a dump, 'cluster', or other settings" in done.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 0),
        (("--fail-on", "info"), 2),
        (("--fail-on", "warning"), 2),
        (("--fail-on", "error"), 0),
        (("--fail-on", "info", "--rule", "pod/invalid"), 0),
        (("--fail-on", "info", "--skip", "pod", "--skip", "node", "--skip", "namespace"), 0),
        (("--rule", "pods"), 64),
        (("--skip", "machine/swap"), 64),
        (("--compare", "colour=blue"), 64),
        (("--compare", "release=1.99"), 1),
        (("--jobs", "-1"), 64),
    ],
)
def test_the_exit_code_says_how_bad_it_is(arguments: tuple[str, ...], code: int) -> None:
    assert memqos("audit", DUMP, *arguments).code == code


def test_faults_outweigh_findings(tmp_path: Path) -> None:
    file = tmp_path / "cut.json"
    file.write_text((ROOT / DUMP).read_text()[:9000])
    done = memqos("audit", str(file), "--fail-on", "info")
    assert done.code == 1
    assert f"{file}:" in done.err
    assert "the file ends within this object – the dump may be truncated" in done.err
    assert "no Node was read" in done.out
    assert "pods on" in done.out


def test_nodes_that_were_not_read_are_named(tmp_path: Path) -> None:
    without = [each for each in objects() if each["metadata"]["name"] != "worker-2"]
    done = memqos("audit", written(tmp_path, without), "-o", "json")
    assert done.code == 1
    assert done.err == "node worker-2 was not read: 5 pods audited without its memory\n"
    worker = next(node for node in done.data["nodes"] if node["name"] == "worker-2")
    assert (worker["memory"], worker["pods"]) == (None, 5)
    assert done.data["counts"]["pods"] == 12


def test_usage_without_pods_is_reported(tmp_path: Path) -> None:
    usage = tmp_path / "usage.yaml"
    usage.write_text("shop/db-0: 1Gi\nshop/ghost: 2Gi\nother/ghost: 2Gi\n")
    done = memqos("audit", DUMP, "--usage", str(usage), "-o", "json")
    assert done.code == 1
    assert done.err == "usage given for pods that were not read: other/ghost, shop/ghost\n"
    assert done.data["counts"]["measured"] == 1


def test_a_list_without_usage_is_no_usage() -> None:
    done = memqos("audit", DUMP, "--usage", DUMP)
    assert done.code == 1
    assert done.err.startswith(f"{DUMP}: it has no usage of pods – give the answer of the metrics")


def test_a_node_that_does_not_say_what_it_has_is_reported(tmp_path: Path) -> None:
    items = objects()
    for item in items:
        if item["metadata"]["name"] == "worker-1":
            item["status"] = {"nodeInfo": {"kubeletVersion": "v1.99.0"}}
    done = memqos("audit", written(tmp_path, items))
    assert done.code == 1
    assert "node worker-1: the Node has no memory capacity" in done.err
    assert (
        "node worker-1: Kubernetes 1.99 is newer than any release that memqos supports" in done.err
    )


@pytest.mark.parametrize("kind", ["metrics in the dump", "summary", "gzip", "yaml", "stdin"])
def test_usage_and_dumps_come_in_many_forms(kind: str, tmp_path: Path) -> None:
    expected = audit("--usage", METRICS)
    dump, usage, stdin = [DUMP], ["--usage", METRICS], ""
    if kind == "metrics in the dump":
        dump, usage = [DUMP, METRICS], []
    elif kind == "summary":
        items = json.loads((ROOT / METRICS).read_text())["items"]
        for item in items:
            item["podRef"] = item.pop("metadata")
            for container in item["containers"]:
                mebibytes = int(container.pop("usage")["memory"].removesuffix("Mi"))
                container["memory"] = {"workingSetBytes": mebibytes << 20}
            total = sum(each["memory"]["workingSetBytes"] for each in item["containers"])
            item["memory"] = {"workingSetBytes": total}
        file = tmp_path / "summary.json"
        file.write_text(json.dumps({"node": {}, "pods": items}))
        usage = ["--usage", str(file)]
    elif kind == "gzip":
        packed = tmp_path / "dump.gz"
        packed.write_bytes(gzip.compress((ROOT / DUMP).read_bytes()))
        dump = [str(packed)]
    elif kind == "yaml":
        import yaml

        plain = tmp_path / "dump.yaml"
        plain.write_text(yaml.safe_dump_all(objects()))
        dump = [str(plain)]
    else:
        dump, stdin = ["-"], (ROOT / DUMP).read_text()
    done = memqos("audit", *dump, *usage, "-o", "json", stdin=stdin)
    assert (done.code, done.err) == (0, "")
    assert done.data == expected


def test_a_snapshot_says_what_its_pods_use(tmp_path: Path) -> None:
    snapshot = ROOT / "tests" / "nodes" / "systemd.json"
    data = json.loads(snapshot.read_text())
    status = data["pods"]["items"][0]["status"]["containerStatuses"][0]
    identity = status["containerID"].partition("://")[2]
    path = next(each for each in data["cgroups"] if identity in each)
    data["cgroups"][path]["memory.current"] = str(777 << 20)
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(data))
    pods = tmp_path / "pods.json"
    items = [item | {"kind": "Pod"} for item in data["pods"]["items"]]
    pods.write_text(json.dumps({"kind": "List", "items": items}))
    done = memqos("audit", str(pods), "--usage", str(file), "-o", "json")
    assert [pod["usage"] for pod in done.data["pods"] if pod["usage"]] == [777 << 20]


def test_two_processes_find_what_one_does() -> None:
    one = audit("--usage", METRICS)
    assert audit("--usage", METRICS, "--jobs", "2") == one
    assert audit("--usage", METRICS, "--jobs", "0") == one


def test_terms_are_compared() -> None:
    compared = audit("--compare", "policy=HardReservation,factor=0.5,release=1.37")["compared"]
    assert compared["with"] == (
        "Kubernetes 1.37 · MemoryQoS on · policy HardReservation · factor 0.5"
    )
    assert compared["before"]["min"] == 0
    assert compared["after"]["min"] == 14696841216
    assert {node["name"] for node in compared["nodes"]} == {"worker-1", "worker-2", "worker-3"}
    assert compared["changed"] == 12
    same = audit("--compare", "factor=0.9")["compared"]
    assert (same["nodes"], same["changed"], same["found"], same["gone"]) == ([], 0, [], [])
    assert "no node differs" in memqos("audit", DUMP, "--compare", "factor=0.9").out


def test_dumps_are_compared(tmp_path: Path) -> None:
    later = written(tmp_path, [each for each in objects() if each["metadata"]["name"] != "db-0"])
    compared = audit("--policy", "HardReservation", "--compare", later)["compared"]
    (node,) = compared["nodes"]
    assert node["name"] == "worker-1"
    assert node["before"]["min"] - node["after"]["min"] == 4 << 30
    text = memqos("audit", DUMP, "--policy", "HardReservation", "--compare", later).out
    assert "1 node differs\n" in text
    assert "−4Gi" in text


def test_yaml_has_what_json_has() -> None:
    import yaml

    text = memqos("audit", DUMP, "-o", "yaml").out
    assert yaml.safe_load(text) == audit()


def started(*arguments: str, **streams: Any) -> "subprocess.Popen[bytes]":
    """The command in a process of its own, and in a group of its own."""
    command = [sys.executable, "-m", "memqos.cli.main", "audit", *arguments]
    path = {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        command, cwd=ROOT, env=os.environ | path, start_new_session=True, **streams
    )


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_an_interrupted_audit_leaves_without_a_trace(jobs: str) -> None:
    pipe = subprocess.PIPE
    with started("-", "--jobs", jobs, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        # Blocks enough for all; then nothing comes any more.
        pod = json.dumps(next(each for each in objects() if each["kind"] == "Pod"))
        process.stdin.write((pod + "\n").encode() * 4000)
        process.stdin.flush()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (130, b"")
        assert err.strip() == b"memqos: interrupted"
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)


def test_processes_that_have_much_to_tell_each_other_do_not_wait_for_ever() -> None:
    spec = {"nodeName": "n", "containers": [{"name": "c"}]}
    pods = [
        {"kind": "Pod", "metadata": {"name": f"p{number}", "uid": "u" * 40 + f"{number}"}}
        for number in range(60_000)
    ]
    text = "".join(json.dumps(pod | {"spec": spec}) + "\n" for pod in pods)
    pipe = subprocess.PIPE
    with started("-", "--jobs", "2", stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            out, _ = process.communicate(text.encode(), timeout=PATIENCE)
        finally:
            process.kill()
    assert out.startswith(b"60,000 pods on 1 node ")


def test_a_reader_that_has_seen_enough_is_no_reason_to_complain() -> None:
    pipe = subprocess.PIPE
    with started(DUMP, "-o", "html", stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    with started(DUMP, stderr=pipe, preexec_fn=partial(os.close, 1)) as process:
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_nobody_watching_sees_no_bar() -> None:
    with started(DUMP, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.read() == b""


class Page(HTMLParser):
    """What a page loads, and whether its tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link"):
            self.open.append(tag)
        self.loads += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href")
        ]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_its_date_and_version(tmp_path: Path) -> None:
    page = memqos("audit", written(tmp_path, objects()), "-o", "html").out
    stamps = re.findall(r"Made (\S+ \S+ UTC) by memqos (\S+)\.<", page)
    assert len(stamps) == 2
    for at, version in stamps:
        made = datetime.strptime(at, "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)
        assert abs(datetime.now(UTC) - made) < timedelta(minutes=5)
        assert version == __version__


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    items = objects()
    items[0]["metadata"]["namespace"] = "<script>alert(1)</script>"
    done = memqos("audit", written(tmp_path, items), "-o", "html")
    page = Page()
    page.feed(done.out)
    assert page.open == []
    assert page.loads == ["data:,"]
    assert "url(" not in done.out
    assert "<script" not in done.out
    assert "&lt;script&gt;" in done.out


@pytest.mark.parametrize(
    "text", ["", "[]", '{"kind": "List", "items": []}', '{"kind": "PodList", "items": null}']
)
def test_a_dump_without_pods_is_no_reason_to_fail_but_to_warn(text: str, tmp_path: Path) -> None:
    file = tmp_path / "none.json"
    file.write_text(text)
    for form in ("table", "json", "yaml", "html"):
        done = memqos("audit", str(file), "-o", form, "--fail-on", "info")
        assert done.code == 0
        assert done.err.startswith(f"nothing to audit in {file}: no pods")
    assert memqos("audit", str(file), "--compare", "policy=None").code == 0
    assert memqos("audit", str(file)).out.endswith("\n\nnothing was audited\n")


def test_pods_that_have_all_ended_leave_nothing_to_audit(tmp_path: Path) -> None:
    pods = [each for each in objects() if each["kind"] == "Pod"]
    for pod in pods:
        pod["status"]["phase"] = "Succeeded"
    done = memqos("audit", written(tmp_path, pods))
    assert done.code == 0
    assert done.err.endswith("dump.ndjson: 12 pods, and all have ended\n")


def test_what_could_not_be_read_is_not_called_empty(tmp_path: Path) -> None:
    done = memqos("audit", str(tmp_path / "none.json"))
    assert done.code == 1
    assert done.err == f"{tmp_path / 'none.json'}: no such file or directory\n"


def test_rules_are_listed_and_explained() -> None:
    everything = memqos("rules")
    assert everything.code == 0
    assert "audit    warning   pod/throttled" in everything.out
    assert "doctor   error     machine/cgroup-v2" in everything.out
    one = memqos("rules", "pod/throttled").out
    assert one.startswith("pod/throttled  warning, memqos audit\n")
    assert "fix: raise the limit" in one
    group = memqos("rules", "namespace", "-o", "json").data
    assert [rule["id"] for rule in group] == ["namespace/no-limit-range", "namespace/quota"]
    unknown = memqos("rules", "pod/throtled")
    assert unknown.code == 64
    assert "did you mean pod/throttled?" in unknown.err
