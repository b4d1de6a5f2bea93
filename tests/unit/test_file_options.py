"""-f and -R as kubectl has them, --kubeconfig, and what a line completes to."""

from pathlib import Path

import pytest
from tests.commands import ROOT, memqos
from tests.fakes.apiserver import fake_api_server, pod
from tests.fakes.kubeconfig import lead_to

POD = (ROOT / "examples" / "one.yaml").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A manifest, and another one in a folder below."""
    (tmp_path / "below").mkdir()
    (tmp_path / "top.yaml").write_text(POD.replace("name: web", "name: top"))
    (tmp_path / "below" / "low.yaml").write_text(POD.replace("name: web", "name: low"))
    return tmp_path


def explained(*arguments: str, stdin: str = "") -> list[str]:
    done = memqos("explain", *arguments, "-o", "json", stdin=stdin)
    return [each["name"] for each in done.data["pods"]]


def test_a_folder_of_f_is_read_without_those_below_unless_r_is_given(folder: Path) -> None:
    assert explained("-f", str(folder)) == ["pod/top"]
    assert explained("-R", "-f", str(folder)) == ["pod/top", "pod/low"]
    assert explained(str(folder)) == ["pod/top", "pod/low"]


def test_an_audit_reads_folders_as_well(folder: Path) -> None:
    def audited(*arguments: str) -> list[str]:
        done = memqos("audit", *arguments, "-o", "json")
        assert done.code == 0, done.err
        return [each["name"] for each in done.data["pods"]]

    assert audited("-f", str(folder)) == ["top"]
    assert audited("-R", "-f", str(folder)) == audited(str(folder)) == ["low", "top"]
    (folder / "empty").mkdir()
    nothing = memqos("audit", str(folder / "empty"))
    assert nothing.code == 1
    assert "empty: no manifest in this folder" in nothing.err


def test_f_may_be_repeated_is_standard_input_and_comes_after_arguments(folder: Path) -> None:
    top, low = str(folder / "top.yaml"), str(folder / "below" / "low.yaml")
    assert explained("-f", top, "-f", low) == ["pod/top", "pod/low"]
    assert explained("-f", "-", low, stdin=POD) == ["pod/low", "pod/web"]


@pytest.mark.parametrize("command", [("admit",), ("fit",), ("numa", "admit")])
def test_without_any_file_there_is_nothing_to_do(command: tuple[str, ...]) -> None:
    done = memqos(*command)
    assert done.code == 64
    assert "Missing argument 'FILE…'" in done.err


def test_kubeconfig_names_the_file_instead_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_api_server() as server:
        server.pods.put(pod("web-0", metadata={"name": "web-0", "namespace": "shop", "uid": "u"}))
        lead_to(server.url, tmp_path, monkeypatch)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
        file = str(tmp_path / "config")
        found = memqos("explain", "pod/web-0", "--kubeconfig", file, "--release", "1.36")
        assert found.code == 0, found.err
        assert "pod/web-0 in shop" in found.out
        missing = memqos("explain", "pod/web-0", "--release", "1.36")
        assert missing.code == 1
        assert "give --kubeconfig" in missing.err


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("memqos explain ", "file\t\n"),
        ("memqos rules machine/n", "plain\tmachine/nri\n"),
        ("memqos explain --context oth", "plain\tother\n"),
        ("memqos explain --context away pod/w", "\n"),
        ("memqos explain --kubeconfig ", "file\t\n"),
        ("memqos why -n ware", "plain\twarehouse\n"),
    ],
)
def test_what_a_line_completes_to(
    line: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_api_server() as server:
        server.stores["namespaces"].put({"metadata": {"name": "warehouse"}})
        lead_to(server.url, tmp_path, monkeypatch)
        monkeypatch.setenv("_MEMQOS_COMPLETE", "zsh_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        assert memqos() == (0, answer, "")
