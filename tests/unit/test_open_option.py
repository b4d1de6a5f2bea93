"""--open of explain, audit and why: a page in a file of one's own, and the browser on it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import ROOT, memqos
from tests.eventually import eventually

COMMANDS = {
    "explain": ("explain", "examples/one.yaml", "--capacity", "16Gi"),
    "audit": ("audit", "examples/cluster/dump.json"),
    "why": ("why", "pod/api-1", "-n", "shop", "--records", "examples/records"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_is_written_and_opened(name: str, tmp_path: Path) -> None:
    browser, note = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {note}.part; mv {note}.part {note}\n')
    browser.chmod(0o755)
    # A process of its own: webbrowser looks for browsers once.
    done = subprocess.run(
        [sys.executable, "-m", "memqos", *COMMANDS[name], "--open"],
        cwd=ROOT,
        env={**os.environ, "BROWSER": str(browser), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    (file,) = re.findall(r"the page is in (\S+)", done.stderr)
    eventually("the browser is opened", note.exists)
    assert note.read_text().strip() == f"file://{file}"
    page = Path(file).read_text()
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert "<script" not in page
    assert os.stat(file).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_browser_the_file_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = memqos(*COMMANDS[name], "--open")
    assert "no browser was found here" in done.err
    assert list(tmp_path.glob("memqos-*/page.html"))


@pytest.mark.parametrize("name", COMMANDS)
def test_data_is_no_page(name: str) -> None:
    done = memqos(*COMMANDS[name], "--open", "-o", "json")
    assert done.code == 64
    assert "leave -o json out" in done.err
