"""Completion as a person meets it: TAB in the real shells, with the code that memqos prints."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import memqos
from tests.fakes.apiserver import FakeApiServer, fake_api_server, pod
from tests.fakes.kubeconfig import lead_to
from tests.terminal.tmux import READY, Terminal, obstacle, terminal

SHELLS = {
    "bash": "bash --norc --noprofile -i",
    "zsh": "zsh -f -i",
    "fish": "fish --no-config -i",
}
SETUP = {
    "bash": "PS1='{ready}'; bind 'set bell-style none'; source {code}",
    "zsh": "PS1='{ready}'; autoload -U compinit; compinit -u -D; source {code}",
    "fish": "function fish_prompt; printf '{ready}'; end; set fish_greeting; source {code}",
}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_api_server() as server:
        server.pods.put(pod("web-0", metadata={"name": "web-0", "namespace": "shop"}))
        server.stores["namespaces"].put({"metadata": {"name": "warehouse"}})
        lead_to(server.url, tmp_path, monkeypatch)
        yield server


@pytest.fixture(params=list(SHELLS))
def shell(
    request: pytest.FixtureRequest, tmp_path: Path, cluster: FakeApiServer
) -> Iterator[Terminal]:
    name: str = request.param
    if reason := obstacle(name):
        pytest.skip(reason)
    code = tmp_path / "completion"
    code.write_text(memqos("completion", name).out)
    environment = {"KUBECONFIG": str(tmp_path / "config")}
    with terminal(tmp_path, SHELLS[name], environment=environment) as opened:
        opened.type(SETUP[name].format(ready=READY, code=code))
        opened.press("Enter")
        opened.press("C-l")
        opened.until(f"^{READY.strip()}$")
        yield opened


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("memqos exp", "memqos explain "),
        ("memqos explain examples/on", "memqos explain examples/one.yaml "),
        ("memqos explain -f examples/on", "memqos explain -f examples/one.yaml "),
        ("memqos explain --kubelet=examples/node/kubelet-", "kubelet=examples/node/kubelet-evict"),
        ("memqos plan --cgroup-root examples/clus", "memqos plan --cgroup-root examples/cluster/"),
        ("memqos explain --release 1.38", "memqos explain --release 1.38 "),
        ("memqos explain --compare 1.36,1.37", "memqos explain --compare 1.36,1.37 "),
        ("memqos explain --gate MemoryQ", "memqos explain --gate MemoryQoS="),
        ("memqos explain --gate MemoryQoS=t", "memqos explain --gate MemoryQoS=true "),
        ("memqos explain --gate=MemoryQoS=t", "memqos explain --gate=MemoryQoS=true "),
        ("memqos agent --mode enf", "memqos agent --mode enforce "),
        ("memqos agent --journal examples/clus", "memqos agent --journal examples/cluster/"),
        ("memqos top --play examples/rec", "memqos top --play examples/records/"),
        ("memqos rules pod/oom", "memqos rules pod/oom-killed "),
        ("memqos explain --context oth", "memqos explain --context other "),
        ("memqos why -n ware", "memqos why -n warehouse "),
        ("memqos why pod/w", "memqos why pod/web-0 "),
        ("memqos explain pod/w", "memqos explain pod/web-0 "),
        ("memqos numa check", "memqos numa check"),
    ],
)
def test_a_word_is_completed(shell: Terminal, typed: str, completed: str) -> None:
    shell.type(typed)
    shell.press("Tab")
    shell.type("#")  # Where the cursor is when all is completed.
    shell.until(rf"{READY}.*{completed}.*#")


def test_a_cluster_that_does_not_answer_completes_to_nothing(shell: Terminal) -> None:
    shell.type("memqos why --context away -n ware")
    shell.press("Tab")
    shell.type("#")
    shown = shell.until("ware.*#")
    assert [line.rstrip() for line in shown if line] == [
        f"{READY}memqos why --context away -n ware#"
    ]
