"""What the pages show is what the commands print."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from tests.commands import ROOT, memqos
from tests.fakes.kubelet import TlsFiles, fake_kubelet, self_signed

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "commands").glob("*.md")),
]
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
TREE = ROOT / "examples" / "tree"

SUDO = """
import subprocess, sys
node, *command = sys.argv[1:]
command += ["--cgroup-root", f"{node}/cgroup", "--journal", f"{node}/run"]
if command[1] != "agent":
    sys.exit(subprocess.run(command).returncode)
command += ["--listen", "127.0.0.1:0", "--state-socket", f"{node}/run/state.sock"]
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as agent:
    for line in agent.stderr:
        print(line, end="", file=sys.stderr)
        if "started" in line:
            agent.terminate()
            break
    agent.stderr.read()
"""
"""Runs a command on a copy of a node, instead of as root on this one; an agent until it runs."""


class Shown(NamedTuple):
    """A command on a page, and what the page says it prints."""

    command: str
    output: list[str]


def shown_on(page: Path) -> list[Shown]:
    return [
        Shown(command, output.splitlines())
        for block in BLOCK.findall(page.read_text())
        for command, _, output in [
            each.partition("\n") for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        ]
    ]


class Reader:
    """Someone who types what pages show, in the project's folder."""

    def __init__(self, folder: Path, kubelet: str, identity: TlsFiles) -> None:
        node, etc, token = folder / "sudo", folder / "etc", folder / "token"
        self._here = {
            "/tmp/node": f"{folder}/node",
            "/etc/memqos": f"{etc}",
            "/run/memqos": f"{node}/run",
            "https://127.0.0.1:10250": kubelet,
            "/etc/kubernetes/pki/ca.crt": f"{identity.cert}",
            "--token-file token": f"--token-file {token}",
        }
        shutil.copytree(TREE, node)
        (etc / "pods").mkdir(parents=True)
        shutil.copy(TREE / "pods.yaml", etc / "pods")
        token.write_text("secret")
        token.chmod(0o600)
        scripts = folder / "bin"
        scripts.mkdir()
        (folder / "sudo.py").write_text(SUDO)
        # The memqos of this tree, whatever else is on the path.
        for name, command in (
            ("memqos", f'"{sys.executable}" -m memqos.cli.main'),
            ("sudo", f'"{sys.executable}" "{folder}/sudo.py" "{node}"'),
        ):
            (scripts / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (scripts / name).chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"}

    def run(self, command: str) -> list[str]:
        """What a command prints, as if it ran where the page says."""
        for shown, here in self._here.items():
            command = command.replace(shown, here)
        done = subprocess.run(
            [shutil.which("bash") or "sh", "-c", f"{{ {command}; }} 2>&1"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=self._environment,
            check=False,
        )
        printed = done.stdout
        for shown, here in self._here.items():
            printed = printed.replace(here, shown)
        printed = re.sub(r"^2\d{3}-\S+T\S+", "2026-01-01T12:00:00.000+00:00", printed, flags=re.M)
        printed = re.sub(r"metrics=127.0.0.1:\d+", "metrics=127.0.0.1:9177", printed)
        printed = re.sub(r"cgroups in \d+ KiB", "cgroups in 22 KiB", printed)
        # What this very machine lacks is noted, and is on no page.
        return [line for line in printed.splitlines() if not line.startswith("note: no ")]


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return self_signed(tmp_path_factory.mktemp("tls"), "kubelet", "IP:127.0.0.1")


@pytest.fixture
def reader(tmp_path: Path, identity: TlsFiles) -> Iterator[Reader]:
    answers = {
        "/pods": {**yaml.safe_load((TREE / "pods.yaml").read_text()), "kind": "PodList"},
        "/metrics": b'kubernetes_build_info{git_version="v1.38.0"} 1\n',
        "/configz": {"kubeletconfig": yaml.safe_load((TREE / "kubelet.yaml").read_text())},
    }
    with fake_kubelet(answers, identity) as kubelet:
        yield Reader(tmp_path, kubelet.url, identity)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if shown_on(page)], ids=lambda page: page.name
)
def test_a_page_followed_top_to_bottom_shows_what_is_printed(page: Path, reader: Reader) -> None:
    for command, output in shown_on(page):
        if "jq " in command and shutil.which("jq") is None:
            continue
        printed = reader.run(command)
        if "…" in output:
            start = output.index("…")
            assert printed[:start] == output[:start], command
        elif output and output[0].startswith("  "):
            assert "\n".join(output) in "\n".join(printed), command
        else:
            assert printed == output, command


@pytest.mark.parametrize(
    ("picture", "command"),
    [
        (
            "ide.svg",
            "explain examples/ide.yaml --kubelet examples/node/kubelet.yaml "
            "--capacity 16Gi --allocatable 15Gi --release 1.37",
        ),
        (
            "numa.svg",
            "numa show --machine examples/numa/machine.yaml "
            "--state examples/numa/memory_manager_state",
        ),
        ("why.svg", "why pod/api-1 -n shop --records examples/records"),
    ],
)
def test_a_picture_in_the_docs_is_what_the_command_draws(picture: str, command: str) -> None:
    drawn = memqos(*command.split(), "-o", "svg").out
    assert drawn == (ROOT / "docs" / "images" / picture).read_text()


def test_the_pages_show_commands() -> None:
    assert sum(len(shown_on(page)) for page in PAGES) > 80


def test_pages_install_nothing_that_is_not_pinned_by_its_hash() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    installs = [
        line
        for page in pages
        for line in page.read_text().splitlines()
        if re.search(r"\bpip3? install\b", line)
    ]
    assert installs
    for line in installs:
        assert "--require-hashes" in line or "--no-build-isolation --no-deps" in line, line


def test_no_two_decisions_share_a_number() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(record.name[:4]) for record in records]
    assert len(set(numbers)) == len(numbers)
    for number, record in zip(numbers, records, strict=True):
        assert record.read_text().startswith(f"# {number}. "), record.name
