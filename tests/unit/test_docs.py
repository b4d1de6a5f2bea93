"""What the pages show is what the commands print."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "commands").glob("*.md")),
]
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
ELSEWHERE = re.compile(r"jq|<!-- |sudo|kubectl")
SCRATCH = "/tmp/node"
"""Where pages copy examples to that commands write to."""


def shown() -> Iterator[tuple[str, str, list[str]]]:
    """Page, command and what it prints; a block that begins with a copy is run from there on."""
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            commands = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
            before = ""
            for command in commands:
                line, _, output = command.partition("\n")
                if line.startswith("memqos ") and not ELSEWHERE.search(line):
                    yield page.name, before + line, output.splitlines()
                if commands[0].startswith("cp "):
                    before += f"{{ {line}; }} >/dev/null 2>&1; "


@pytest.mark.parametrize(("page", "command", "output"), list(shown()))
def test_a_page_shows_what_the_command_prints(
    page: str, command: str, output: list[str], tmp_path: Path
) -> None:
    # The installed script, whatever else is on the path.
    script = tmp_path / "memqos"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memqos.cli.main "$@"\n')
    script.chmod(0o755)
    done = subprocess.run(
        [
            shutil.which("bash") or "sh",
            "-c",
            f"{command} 2>&1".replace(SCRATCH, f"{tmp_path}/node"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=False,
    )
    # What this very machine lacks is noted, and is on no page.
    printed = [line for line in done.stdout.splitlines() if not line.startswith("note: no ")]
    if "…" in output:
        start = output.index("…")
        assert printed[:start] == output[:start]
    elif output and output[0].startswith("  "):
        assert "\n".join(output) in done.stdout
    else:
        assert printed == output


def test_the_pages_show_commands() -> None:
    assert sum(1 for _ in shown()) > 8


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
