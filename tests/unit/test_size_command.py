"""`memqos size` and `memqos backtest` as a shell runs them: sources, bad input, whole screens."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.commands import memqos

from memqos import __version__

MIB = 1 << 20
HEADER = "series,t_seconds,usage_bytes\n"


def rows(name: str, values: list[float], step: int = 300) -> str:
    return "".join(f"{name},{index * step},{value}\n" for index, value in enumerate(values))


@pytest.fixture
def steady(tmp_path: Path) -> str:
    file = tmp_path / "steady.csv"
    file.write_text(HEADER + rows("shop/web-7d9cd48999-8jknx/app", [200.0 * MIB] * 900))
    return str(file)


WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: web
        resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}
"""


@pytest.fixture
def web(tmp_path: Path) -> str:
    file = tmp_path / "web.yaml"
    file.write_text(WEB)
    return str(file)


def test_another_program_can_judge_it(steady: str) -> None:
    done = memqos("size", "--history", steady, "--until", "86400", "--guaranteed", "-o", "json")
    assert done.code == 0
    (series,) = done.data["series"]
    assert series["series"] == "shop/web-7d9cd48999-8jknx/app"
    assert series["request"] == series["limit"]
    assert series["samples"] == 289
    assert 200 * MIB < series["request"] < 260 * MIB


def test_the_screen_of_a_steady_container(steady: str) -> None:
    done = memqos("size", "--history", steady, "--why", "--release", "1.37")
    assert done.out.splitlines() == [
        "1 series from 1 history, 1 sized",
        "MemoryQoS is shown as if on: no kubelet is known; by default it is on in 1.37 (beta)",
        "",
        "container     pods  request  limit   peak   mean  risk  confidence",
        "shop/web/app     1    219Mi  219Mi  200Mi  200Mi  1.0%      medium",
        "",
        "shop/web/app",
        "  request 219Mi, limit 219Mi, by working set",
        "    peak 200Mi after 0.0 h",
        "    + 18Mi margin for 3.1 days of history",
        "  Burstable, memory.max 219Mi, oom_score_adj needs node",
        "  risk of eviction: unknown: no source has the memory pressure of its node",
        "  note: a sample every 5 min misses shorter peaks",
    ]


def test_gzip_is_recognised(tmp_path: Path, steady: str) -> None:
    packed = tmp_path / "steady.csv.gz"
    packed.write_bytes(gzip.compress(Path(steady).read_bytes()))
    plain, same = (
        memqos("size", "--history", each, "-o", "json") for each in (steady, str(packed))
    )
    assert plain.data == same.data


def test_limits_and_finer_peaks_are_read(tmp_path: Path) -> None:
    file = tmp_path / "fine.csv"
    lines = [f"a,{index * 60},{100 * MIB},{400 * MIB},{150 * MIB}" for index in range(100)]
    file.write_text("series,t_seconds,usage_bytes,limit_bytes,max_bytes\n" + "\n".join(lines))
    (series,) = memqos("size", "--history", str(file), "-o", "json").data["series"]
    assert series["peak"] == 150 * MIB


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,time\n", "the header lacks series and t_seconds and usage_bytes"),
        ("", "the header lacks"),
        (HEADER + "a,1,5\na,x,5\n", ":3: t_seconds 'x' is not a number"),
        (HEADER + "a,1,5Mi\n", ":2: usage_bytes '5Mi' is not a number"),
        (HEADER + "a,1\n", ":2: no usage_bytes"),
        (HEADER, "no series matches"),
        (HEADER + "a" * 300_000, ":2: no t_seconds"),
        ('{"status":"error","error":"too many points"}', "Prometheus refused the query: too many"),
        ('{"a":', "this is not JSON"),
        ('{"kind":"\udcff"}', "this is not JSON"),
        ("[1]", "this is not an answer of Prometheus"),
        ('{"kind":"Pod","status":{}}', "a Pod has no history of usage"),
        ('{"kind":"List","items":[{"kind":"Pod"}]}', "this is not a list of PodMetrics"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "broken.csv"
    file.write_text(text, errors="surrogateescape")
    done = memqos("size", "--history", str(file))
    assert done.code == 1
    assert message in done.err
    assert not done.out


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path, steady: str) -> None:
    """As spreadsheets write it."""
    marked = tmp_path / "marked.csv"
    marked.write_text(Path(steady).read_text(), encoding="utf-8-sig", newline="\r\n")
    plain, same = (
        memqos("size", "--history", each, "-o", "json") for each in (steady, str(marked))
    )
    assert plain.data == same.data


def test_a_truncated_file_is_refused(tmp_path: Path, steady: str) -> None:
    file = tmp_path / "cut.csv.gz"
    file.write_bytes(gzip.compress(Path(steady).read_bytes())[:-200])
    done = memqos("size", "--history", str(file))
    assert done.code == 1
    assert "cannot be decompressed" in done.err


def test_a_missing_history_is_wrong_usage_or_an_error(tmp_path: Path) -> None:
    assert memqos("size").code == 64
    assert "no such file" in memqos("size", "--history", str(tmp_path / "none")).err
    assert "there is no history here" in memqos("size", "--history", str(tmp_path)).err
    assert memqos("size", "--history", "x", "--risk", "0.1", "--slack", "0.1").code == 64


def test_too_little_is_no_recommendation_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "one.csv"
    file.write_text(HEADER + rows("a", [5.0 * MIB]))
    done = memqos("size", "--history", str(file))
    assert done.code == 0
    assert "a: 1 sample: too few for a recommendation" in done.out
    (series,) = memqos("size", "--history", str(file), "-o", "json").data["series"]
    assert (series["request"], series["limit"]) == (None, None)


def test_a_patch_names_the_workload_and_its_container(steady: str, web: str) -> None:
    done = memqos("size", web, "--history", steady, "-o", "patch")
    assert done.out.splitlines() == [
        "apiVersion: apps/v1",
        "kind: Deployment",
        "metadata:",
        "  name: web",
        "  namespace: shop",
        "spec:",
        "  template:",
        "    spec:",
        "      containers:",
        "      - name: app",
        "        resources:",
        "          requests:",
        "            memory: 219Mi",
        "          limits:",
        "            memory: 219Mi",
    ]


def test_an_autoscaler_stays_between_request_and_limit(steady: str, web: str) -> None:
    done = memqos("size", web, "--history", steady, "-o", "vpa")
    assert "kind: VerticalPodAutoscaler" in done.out
    assert "    - containerName: app" in done.out
    assert done.out.count("memory: 219Mi") == 2


@pytest.mark.parametrize(
    ("kind", "name"),
    [("CronJob", "report"), ("Job", "report-29012460"), ("Job", "report-29012520")],
)
def test_the_runs_of_a_cron_job_are_one_workload(tmp_path: Path, kind: str, name: str) -> None:
    history, manifest = tmp_path / "usage.csv", tmp_path / "job.yaml"
    pods = ("report-29012460-x7bvq", "report-29012520-bc9wz")
    history.write_text(HEADER + "".join(rows(f"shop/{pod}/c", [5.0 * MIB] * 9) for pod in pods))
    template: dict[str, Any] = {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    spec = {"schedule": "@daily", "jobTemplate": {"spec": template}}
    text = {
        "apiVersion": "batch/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop"},
        "spec": spec if kind == "CronJob" else template,
    }
    manifest.write_text(json.dumps(text))
    (workload,) = memqos("size", str(manifest), "--history", str(history), "-o", "json").data[
        "workloads"
    ]
    assert workload["pods"] == (2 if kind == "CronJob" else 1)
    by_name = memqos("size", name, "--history", str(history), "-o", "json").data["series"]
    assert len(by_name) == (2 if kind == "CronJob" else 1)


def test_a_kustomization_holds_the_patches(steady: str, web: str) -> None:
    done = memqos("size", web, "--history", steady, "-o", "kustomize")
    assert "kind: Kustomization" in done.out
    assert done.out.count('"memory":"219Mi"') == 2


def test_a_patch_for_a_workload_of_unknown_kind_is_refused(steady: str) -> None:
    done = memqos("size", "--history", steady, "-o", "patch")
    assert done.code == 1
    assert "the kind of workload of shop/web is unknown" in done.err


def test_what_the_manifest_has_now_is_shown(steady: str, web: str) -> None:
    done = memqos("size", web, "--history", steady, "--why")
    assert "request 219Mi, limit 219Mi (now request 1024Mi, limit 2048Mi)" in done.out.replace(
        "1Gi", "1024Mi"
    ).replace("2Gi", "2048Mi")


@pytest.mark.parametrize("name", ["web", "deployment/web", "web-7d9cd48999-8jknx"])
def test_series_are_selected_by_pod_or_workload(tmp_path: Path, name: str) -> None:
    file = tmp_path / "two.csv"
    file.write_text(
        HEADER
        + rows("shop/web-7d9cd48999-8jknx/app", [200.0 * MIB] * 50)
        + rows("shop/db-0/app", [200.0 * MIB] * 50)
    )
    found = memqos("size", name, "--history", str(file), "-o", "json").data["series"]
    assert [each["series"] for each in found] == ["shop/web-7d9cd48999-8jknx/app"]


def test_the_picture_shows_the_history_and_the_limit(steady: str) -> None:
    done = memqos("size", "--history", steady, "-o", "svg")
    assert done.out.startswith("<svg")
    assert "limit 219Mi" in done.out


@pytest.mark.parametrize(
    ("gate", "state"), [((), "as if on"), (("--gate", "MemoryQoS=false"), "off")]
)
def test_every_answer_says_whether_memory_qos_is_on(
    steady: str, gate: tuple[str, ...], state: str
) -> None:
    size = ("size", "--history", steady, *gate)
    backtest = ("backtest", "--history", steady, "--limit", "1Gi", *gate)
    enablement = memqos(*size, "-o", "json").data["enablement"]
    assert enablement["state"] == state
    assert enablement["sentence"] in memqos(*size).out.splitlines()
    assert re.search(rf"Kubernetes 1\.\d+ · MemoryQoS {state}", memqos(*size, "-o", "svg").out)
    assert memqos(*backtest, "-o", "json").data["enablement"] == [enablement]
    assert enablement["sentence"] in memqos(*backtest).out.splitlines()
    assert enablement["sentence"] in memqos(*backtest, "-o", "html").out


def test_the_flight_recorder_is_a_history() -> None:
    done = memqos("size", "--history", "examples/records", "-o", "json")
    by_name = {each["series"]: each for each in done.data["series"]}
    assert by_name["shop/db-0/postgres"]["decided_by"] == "anonymous memory"
    assert by_name["shop/api-1/api"]["decided_by"] == "working set"


@pytest.mark.parametrize("kind", ["PodMetricsList", "List"])
def test_dumps_of_pod_metrics_are_a_history(tmp_path: Path, kind: str) -> None:
    """As the metrics API has them, and as `kubectl get podmetrics -o json` prints them."""
    for minute in range(8):
        item = {
            "metadata": {"name": "web-0", "namespace": "shop"},
            "timestamp": f"2026-03-02T10:0{minute}:00Z",
            "containers": [{"name": "app", "usage": {"memory": f"{100 + minute}Mi"}}],
        }
        dump = {"kind": kind, "items": [item]}
        (tmp_path / f"{minute}.json").write_text(json.dumps(dump))
    (series,) = memqos("size", "--history", str(tmp_path), "-o", "json").data["series"]
    assert (series["series"], series["samples"]) == ("shop/web-0/app", 8)
    assert series["peak"] == 107 * MIB


def test_an_amount_in_pod_metrics_that_is_no_memory_is_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "metrics.json"
    item = {
        "metadata": {"name": "web-0", "namespace": "shop"},
        "timestamp": "2026-03-02T10:00:00Z",
        "containers": [{"name": "app", "usage": {"memory": "1e999"}}],
    }
    file.write_text(json.dumps({"kind": "PodMetricsList", "items": [item]}))
    done = memqos("size", "--history", str(file))
    assert (done.code, done.err) == (0, "")
    assert "shop/web/app: there is no sample that can be used" in done.out
    file.write_text(file.read_text().replace("1e999", "64MB"))
    done = memqos("size", "--history", str(file))
    assert done.err == (
        f"memqos: {file}: shop/web-0/app: '64MB' is not a quantity – write 64M or 64Mi\n"
    )


@pytest.mark.parametrize("sample", ["nan,5", "1e400,5", "1,1e400", "1,1e300"])
def test_what_size_does_not_count_is_not_replayed(tmp_path: Path, sample: str) -> None:
    """A sample without a time in seconds, or with no amount of memory."""
    file = tmp_path / "usage.csv"
    file.write_text(f"{HEADER}a,{sample}\n{rows('a', [5.0 * MIB] * 9)}")
    done = memqos("backtest", "--history", str(file), "--limit", "1Gi")
    assert done.code == 0
    assert done.out.endswith("1 container-day: throttled on 0, killed on 0 (0 kills)\n")


def matrix(values: list[list[Any]], **labels: str) -> dict[str, Any]:
    return {"metric": labels, "values": values}


SAVED = {
    "status": "success",
    "data": {
        "resultType": "matrix",
        "result": [
            matrix(
                [[60 * index, str(100 * MIB)] for index in range(50)] + [[3000, "NaN"]],
                __name__="container_memory_working_set_bytes",
                namespace="shop",
                pod="web-0",
                container="app",
            ),
            matrix([[0, "1"]], namespace="shop", pod="web-0", container="POD"),
        ],
    },
}


@pytest.mark.parametrize("indent", [None, 2])
def test_a_saved_answer_of_prometheus_is_a_history(tmp_path: Path, indent: int | None) -> None:
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(SAVED, indent=indent))
    (series,) = memqos("size", "--history", str(file), "-o", "json").data["series"]
    assert (series["series"], series["samples"]) == ("shop/web-0/app", 50)
    assert any("1 sample: no amount of memory" in note for note in series["notes"])


def test_the_screen_of_a_backtest(tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    values = [100.0, 195.0, 195.0, 100.0, 300.0, 100.0]
    file.write_text(HEADER + rows("shop/web-0/app", [each * MIB for each in values]))
    done = memqos(
        "backtest", "--history", str(file), "--request", "100Mi", "--limit", "200Mi", "--why",
        "--compare", "factor=0.5", "--release", "1.36",
    )  # fmt: skip
    assert done.out.splitlines() == [
        "MemoryQoS is shown as if on: no kubelet is known; by default it is off in 1.36 (alpha)",
        "",
        "Kubernetes 1.36 · MemoryQoS as if on · policy None · factor 0.9",
        "container        high    max  throttled  days  protected  killed",
        "shop/web-0/app  190Mi  200Mi      33.3%   1/1          –       1",
        "1 container-day: throttled on 1, killed on 1 (1 kill)",
        "  shop/web-0/app killed after 0.3 h, for 5 min, at 300Mi",
        "  shop/web-0/app throttled after 0.1 h, for 10 min, at 195Mi",
        "",
        "Kubernetes 1.36 · MemoryQoS as if on · policy None · factor 0.5",
        "container        high    max  throttled  days  protected  killed",
        "shop/web-0/app  150Mi  200Mi      33.3%   1/1          –       1",
        "1 container-day: throttled on 1, killed on 1 (1 kill)",
        "  shop/web-0/app killed after 0.3 h, for 5 min, at 300Mi",
        "  shop/web-0/app throttled after 0.1 h, for 10 min, at 195Mi",
        "",
        "the second setting compared with the first: throttled 0 s longer, 0 more kills",
    ]


def test_a_backtest_takes_sizes_out_of_the_manifest(steady: str, web: str) -> None:
    done = memqos(
        "backtest", web, "--history", steady, "--policy", "TieredReservation", "-o", "json"
    )
    (series,) = done.data["series"]
    (result,) = series["results"]
    assert result["memory.max"] == 2048 * MIB
    assert result["protected_bytes"] == 1024 * MIB
    assert result["protected_seconds"] == result["seconds"]


def test_a_backtest_without_sizes_says_what_to_give(steady: str) -> None:
    done = memqos("backtest", "--history", steady)
    assert done.code == 1
    assert "give a manifest, or --request and --limit" in done.err


def test_a_backtest_page_needs_nothing_else(steady: str, web: str) -> None:
    done = memqos("backtest", web, "--history", steady, "--limit", "1Gi", "-o", "html")
    assert done.out.startswith("<!doctype html>")
    assert re.search(rf"Made \d{{4}}-\d\d-\d\d \d\d:\d\d UTC by memqos {__version__}\.", done.out)
    assert "<script" not in done.out
    assert "src=" not in done.out


def test_names_are_never_markup(tmp_path: Path) -> None:
    file = tmp_path / "evil.csv"
    file.write_text(HEADER + rows("ns/<script>x/\x1b[31m", [200.0 * MIB] * 50))
    for arguments in (("size", "-o", "svg"), ("backtest", "--limit", "1Gi", "-o", "html")):
        out = memqos(arguments[0], "--history", str(file), *arguments[1:]).out
        assert "<script>x" not in out
        assert "\x1b" not in out


@pytest.mark.parametrize(
    "command",
    ["size @pods", "backtest @pods", "audit @pods", "audit @pods -o html", "size @pods -o svg"],
)
def test_a_pod_with_a_quantity_that_cannot_be_read_spoils_no_other(
    tmp_path: Path, command: str
) -> None:
    def pod(name: str, limit: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "containers": [
                    {"name": "app", "image": "x", "resources": {"limits": {"memory": limit}}}
                ]
            },
            "status": {"phase": "Running"},
        }

    (tmp_path / "usage.csv").write_text(
        HEADER + "".join(rows(f"shop/{name}/app", [50.0 * MIB] * 900) for name in ("odd", "good"))
    )
    items = [pod("odd", "1e1001"), pod("good", "128Mi")]
    (tmp_path / "pods").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    words = [word.replace("@", f"{tmp_path}/") for word in command.split()]
    done = memqos(*words, "--history", f"{tmp_path}/usage.csv")
    assert done.code == 1
    assert "good" in done.out
    (line,) = [line for line in done.err.splitlines() if "is not a quantity" in line]
    assert line.startswith(f"{tmp_path}/pods:1:")


def test_an_audit_with_history_says_what_is_requested_beyond_need(tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    names = ("shop/db-0/postgres", "shop/db-1/postgres")
    file.write_text(HEADER + "".join(rows(name, [50.0 * MIB] * 900) for name in names))
    dump = "examples/cluster/dump.json"
    done = memqos("audit", dump, "--history", str(file))
    # The audit uses the LimitRange in the dump, though this comparison does not.
    assert not done.err
    shown = done.out.splitlines()
    start = shown.index("Requests compared with history: 8064Mi more than needed")
    assert shown[start + 1 :] == [
        "container         pods  requests  needs    gain  risk",
        "shop/db/postgres     2       4Gi   64Mi  8064Mi  1.0%",
        "13 containers without enough history stay as they are",
        "fits on 2 instead of 2 of 3 nodes, by resources only, without taints and affinity",
        "",
        "node      pods  allocatable     requested        needed",
        "worker-1     4          7Gi  6720Mi (94%)  2688Mi (38%)",
        "worker-2     5          7Gi  5696Mi (79%)  1664Mi (23%)",
        "worker-3     3         14Gi  1600Mi (11%)  1600Mi (11%)",
    ]
    data = memqos("audit", dump, "--history", str(file), "-o", "json").data["savings"]
    assert data["workloads"][0]["gain"] == 8064 * MIB
    assert sum(each["requested"] - each["recommended"] for each in data["by_node"]) == 8064 * MIB


def test_the_page_of_an_audit_has_what_history_shows(tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(HEADER + rows("shop/db-0/postgres", [50.0 * MIB] * 900))
    dump = "examples/cluster/dump.json"
    page = memqos("audit", dump, "--history", str(file), "-o", "html").out
    assert "<h2>Requests compared with history: 8064Mi more than needed</h2>" in page
    assert "<td>shop/db/postgres</td><td>2</td><td>4Gi</td><td>64Mi</td>" in page
    assert "<td>worker-1</td><td>4</td><td>7Gi</td><td>6720Mi (94%)</td>" in page
    assert "Requests against history" not in memqos("audit", dump, "-o", "html").out


def eviction_history(folder: Path, pressed: range) -> str:
    """Four days with a peak at noon; the node is under pressure at these samples."""
    file = folder / "pressed.csv"
    lines = [
        f"shop/web-0/app,{300 * index},{(300.0 if index % 288 == 144 else 100.0) * MIB},"
        f"{int(index in pressed)}\n"
        for index in range(4 * 288)
    ]
    file.write_text(HEADER.replace("\n", ",node_pressure\n") + "".join(lines))
    return str(file)


def test_a_broken_manifest_does_not_select_every_series(tmp_path: Path, steady: str) -> None:
    file = tmp_path / "web.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nspec: {containers: 5}\n")
    for command in ("size", "backtest"):
        done = memqos(command, str(file), "--history", steady)
        assert done.code == 1
        assert "no pod could be read" in done.err
        assert not done.out


def test_daemons_go_with_their_node(tmp_path: Path) -> None:
    file, dump = tmp_path / "usage.csv", tmp_path / "dump.json"
    file.write_text(HEADER + rows("shop/db-0/postgres", [50.0 * MIB] * 900))
    objects = json.loads(Path("examples/cluster/dump.json").read_text())
    for each in objects["items"]:
        if each["kind"] == "Pod":
            each["metadata"]["ownerReferences"] = [{"kind": "DaemonSet"}]
    dump.write_text(json.dumps(objects))
    savings = memqos("audit", str(dump), "--history", str(file), "-o", "json").data["savings"]
    assert savings["nodes_then"] == 0


@pytest.mark.parametrize(
    ("pressed", "share"), [(range(140, 150), 0.25), (range(20, 30), 0.0), (range(4 * 288), 1.0)]
)
def test_a_container_above_its_request_on_a_pressed_node_is_evicted(
    tmp_path: Path, pressed: range, share: float
) -> None:
    file = eviction_history(tmp_path, pressed)
    (series,) = memqos("size", "--history", file, "-o", "json").data["series"]
    assert series["request"] < 300 * MIB
    assert series["evictedDays"] == share
    (series,) = memqos("size", "--history", file, "--guaranteed", "-o", "json").data["series"]
    assert series["evictedDays"] == 0


def test_the_risk_of_eviction_is_shown(tmp_path: Path) -> None:
    shown = memqos("size", "--history", eviction_history(tmp_path, range(140, 150)), "--why").out
    assert "risk of eviction: above the request under memory pressure on 25.0% of days" in shown


@pytest.mark.parametrize(
    ("refaults", "decides"), [("7", "anonymous memory"), ("{index}", "working set")]
)
def test_cache_that_is_read_again_is_needed(tmp_path: Path, refaults: str, decides: str) -> None:
    file = tmp_path / "cache.csv"
    file.write_text(
        HEADER.replace("\n", ",anon_bytes,refaults\n")
        + "".join(
            f"shop/web-0/app,{300 * index},{900 * MIB},{100 * MIB},{refaults.format(index=index)}\n"
            for index in range(900)
        )
    )
    (series,) = memqos("size", "--history", str(file), "-o", "json").data["series"]
    assert series["decided_by"] == decides
    notes = " ".join(series["notes"])
    assert ("899 pages of cache read again after reclaim" in notes) == (decides == "working set")


def test_throttling_and_room_on_a_node_follow_from_the_size(tmp_path: Path) -> None:
    file = tmp_path / "spiky.csv"
    values = [(900.0 if index % 288 == 100 else 100.0) * MIB for index in range(288 * 4)]
    file.write_text(HEADER + rows("shop/web-0/app", values))
    arguments = ("size", "--history", str(file), "--allocatable", "10Gi", "--factor", "0.1")
    (series,) = memqos(*arguments, "-o", "json").data["series"]
    assert series["throttled_days"] == 1.0
    shown = memqos(*arguments, "--why").out
    assert "above memory.high on 100.0% of the days so far" in shown
    assert f"{(10 << 30) // series['request']} such containers fit on a node with 10Gi" in shown
