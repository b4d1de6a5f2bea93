"""The pods of a node, wherever they come from; none is left out without a word."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kubelet import fake_kubelet

from memqos.converge.pod_sources import (
    CachedFilePods,
    FilePods,
    KubeletPods,
    PodSource,
    parse_pod_source,
)
from memqos.converge.runtime_labels import LabelledPods
from memqos.errors import InputError, Unreachable
from memqos.host.kubelet import KubeletEndpoint
from memqos.kube.pod import Pod

NODES = Path(__file__).parents[1] / "nodes"
ENDPOINT = KubeletEndpoint("http://127.0.0.1:1")


def pod(name: str, node: str | None = "node1", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
        **more,
    }


def pod_list(*pods: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(pods)}


def names(pods: list[Pod]) -> list[str | None]:
    return [each.metadata.name for each in pods]


def put(path: Path, data: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


class TestFiles:
    def test_a_dump_of_pods(self, tmp_path: Path) -> None:
        file = put(tmp_path / "pods.json", pod_list(pod("a"), pod("b")))
        assert names(parse_pod_source(file).pods()) == ["a", "b"]

    def test_a_folder_of_manifests(self, tmp_path: Path) -> None:
        put(tmp_path / "pods/b.yaml", {"apiVersion": "v1", "kind": "Pod", **pod("b")})
        put(tmp_path / "pods/sub/c.json", pod_list(pod("c")))
        put(tmp_path / "pods/a.yaml", "apiVersion: v1\nkind: Secret\n")
        source = parse_pod_source(str(tmp_path / "pods"))
        assert names(source.pods()) == ["b", "c"]
        assert source.describe() == str(tmp_path / "pods")

    def test_one_file_of_a_folder_that_cannot_be_read_does_not_hold_up_the_others(
        self, tmp_path: Path
    ) -> None:
        put(tmp_path / "a.json", pod_list(pod("a")))
        put(tmp_path / "b.yaml", "kind: [")
        (tmp_path / "c.yaml").write_bytes(b"kind: Pod\nmetadata: {name: '\xff'}\n")
        put(tmp_path / "d.yaml", "apiVersion: v1\nkind: Pod\nspec: {containers: 5}\n")
        put(tmp_path / "e.json", pod_list(pod("e")))
        source = FilePods([str(tmp_path)])
        for _ in range(2):
            assert names(source.pods()) == ["a", "e"]
            faults = [Path(fault.file or "").name for fault in source.faults]
            assert faults == ["b.yaml", "c.yaml", "d.yaml"]

    @pytest.mark.parametrize("files", [{}, {"a.yaml": "kind: ["}])
    def test_a_folder_of_which_nothing_can_be_read_is_refused(
        self, tmp_path: Path, files: dict[str, str]
    ) -> None:
        for name, text in files.items():
            put(tmp_path / name, text)
        with pytest.raises(InputError):
            FilePods([str(tmp_path)]).pods()

    def test_the_pods_of_a_snapshot(self) -> None:
        found = parse_pod_source(str(NODES / "cgroupfs.json")).pods()
        assert len(found) == 12
        assert all(each.status is not None for each in found)

    @pytest.mark.parametrize(
        "text",
        [
            "apiVersion: v1\nkind: Pod\nspec: {containers: 5}\n",
            "apiVersion: v1\nkind: Secret\n",
            "apiVersion: v1\nkind: Pod\n---\n{",
        ],
    )
    def test_a_file_that_holds_anything_else_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(InputError) as caught:
            FilePods([put(tmp_path / "pods.yaml", text)]).pods()
        assert caught.value.file == f"{tmp_path}/pods.yaml"

    def test_so_is_one_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no such file"):
            FilePods([f"{tmp_path}/none"]).pods()

    def test_pods_of_several_nodes_are_not_taken_for_one(self, tmp_path: Path) -> None:
        file = put(tmp_path / "all.json", pod_list(*[pod(str(i), f"n{i}") for i in range(5)]))
        with pytest.raises(InputError) as caught:
            FilePods([file]).pods()
        assert "pods of 5 nodes: n0, n1, n2 and 2 more" in str(caught.value)
        assert "--field-selector spec.nodeName=" in str(caught.value)

    def test_pods_on_no_node_yet_own_nothing_on_this_one(self, tmp_path: Path) -> None:
        waiting = pod("waiting", None, status={"phase": "Pending"})
        file = put(tmp_path / "all.json", pod_list(pod("a"), waiting))
        assert names(FilePods([file]).pods()) == ["a"]

    def test_a_manifest_names_no_node(self, tmp_path: Path) -> None:
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}}
        file = put(tmp_path / "new.json", {**manifest, "spec": {"containers": []}})
        assert names(FilePods([file]).pods()) == ["new"]


class TestKubelet:
    def test_its_pods_are_what_it_answers(self) -> None:
        node = json.loads((NODES / "systemd.json").read_text())
        with fake_kubelet({"/pods": node["pods"]}) as kubelet:
            source = parse_pod_source(kubelet.url)
            assert isinstance(source, KubeletPods)
            assert source.describe() == f"the kubelet at {kubelet.url}"
            assert source.pods() == FilePods([str(NODES / "systemd.json")]).pods()

    @pytest.mark.parametrize("answer", [pod_list(), {**pod_list(), "items": None}])
    def test_it_may_have_none(self, answer: dict[str, Any]) -> None:
        with fake_kubelet({"/pods": answer}) as kubelet:
            assert parse_pod_source(kubelet.url).pods() == []

    @pytest.mark.parametrize(
        "answer",
        [b"<html>", b"", b"\xff", b"[" * 100_000, {"kind": "Status"}, {"items": []},
         {"kind": "PodList", "items": [{"spec": 5}]}],
    )  # fmt: skip
    def test_what_is_no_list_of_pods_is_refused(self, answer: object) -> None:
        with fake_kubelet({"/pods": answer}) as kubelet:
            with pytest.raises(InputError) as caught:
                parse_pod_source(kubelet.url).pods()
            assert caught.value.file == f"{kubelet.url}/pods"

    def test_silence_is_no_empty_list(self) -> None:
        source: PodSource = KubeletPods(KubeletEndpoint("http://127.0.0.1:1"))
        with pytest.raises(Unreachable):
            source.pods()


class TestWhatIsAskedOfASource:
    """An agent asks the same of every source; one that cannot tell says so."""

    @pytest.mark.parametrize(
        "source", [FilePods(["/pods"]), CachedFilePods(["/pods"]), KubeletPods(ENDPOINT)]
    )
    def test_one_that_answers_at_once_is_never_waited_for_and_never_stale(
        self, source: PodSource
    ) -> None:
        assert (source.has_answer, source.lacks_pods, source.stale_reason) == (False, False, None)
        assert (source.faults, source.node(), source.event_poster()) == ((), None, None)
        source.stop()

    def test_a_kubelet_can_be_asked_for_its_configuration_and_a_file_cannot(self) -> None:
        assert KubeletPods(ENDPOINT).kubelet_endpoint(None) is ENDPOINT
        assert FilePods(["/pods"]).kubelet_endpoint(None) is None

    def test_labels_of_a_runtime_leave_the_faults_of_the_files(self, tmp_path: Path) -> None:
        put(tmp_path / "a.json", pod_list(pod("a")))
        put(tmp_path / "b.yaml", "kind: [")
        source = LabelledPods(FilePods([str(tmp_path)]), dict, "node")
        assert names(source.pods()) == ["a"]
        assert [Path(fault.file or "").name for fault in source.faults] == ["b.yaml"]
