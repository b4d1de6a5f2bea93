"""What a person sees who types commands into a terminal."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import ROOT
from tests.terminal.tmux import READY, Terminal, obstacle, terminal
from tests.unit.test_screens import COMMANDS

NARROW = 80
DOCTOR = f"memqos {COMMANDS['doctor']}"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Terminal]:
    if reason := obstacle("bash"):
        pytest.skip(reason)
    with terminal(tmp_path, "bash --norc --noprofile -i", NARROW, {"PS1": READY}) as opened:
        opened.type(f"PS1='{READY}'; unset NO_COLOR COLUMNS")
        opened.press("Enter")
        opened.press("C-l")
        opened.until(f"^{READY.strip()}$")
        yield opened


def test_a_screen_has_the_width_of_the_terminal(shell: Terminal) -> None:
    stored = (ROOT / "tests" / "screens" / f"doctor.{NARROW}.txt").read_text().splitlines()
    assert shell.run(DOCTOR) == stored


def test_severities_have_colours_unless_they_are_turned_off(shell: Terminal) -> None:
    shell.run(DOCTOR)
    assert any("\033[36minfo" in line for line in shell.screen(escapes=True))
    for off in (f"NO_COLOR=1 {DOCTOR}", f"{DOCTOR} --color never", f"{DOCTOR} | cat"):
        shell.run(off)
        assert not any("\033[3" in line for line in shell.screen(escapes=True)), off
