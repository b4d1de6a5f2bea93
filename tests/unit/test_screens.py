"""Whole screens of the main commands on terminals of 80, 120 and 200 columns.

`python -m tests.unit.test_screens` writes them anew; look at what changed before it is committed.
"""

import os
import re
import shlex
from typing import Final

import pytest
from tests.commands import ROOT, Done, memqos

from memqos.draw.text.lines import Paragraph, Screen, Styled, Table, display_width
from memqos.draw.text.render import render

FOLDER: Final = ROOT / "tests" / "screens"
WIDTHS: Final = (80, 120, 200)
COMMANDS: Final = {
    "explain": "explain examples/shop.yaml --node examples/node/node.yaml "
    "--kubelet examples/node/kubelet.yaml",
    "explain-why": "explain examples/one.yaml --capacity 16Gi --why",
    "explain-compare": "explain examples/one.yaml --capacity 16Gi --compare "
    "1.22,1.24,1.26,1.27,1.28,1.32,1.36,1.37",
    "plan": "plan --snapshot tests/nodes/numa.json --policy None",
    "audit": "audit examples/cluster/dump.json --usage examples/cluster/metrics.json",
    "why": "why pod/api-1 -n shop --records examples/records",
    "doctor": "doctor --snapshot tests/nodes/systemd.json",
    "rank-eviction": "rank eviction --pods examples/cluster/pods.yaml "
    "--usage examples/cluster/usage.json --kubelet examples/node/kubelet.yaml",
    "rank-oom": "rank oom --from examples/cluster/processes.json "
    "--pods examples/cluster/pods.yaml --total 16Gi",
    "fit": "fit examples/shop.yaml --nodes examples/cluster/nodes.yaml "
    "--pods examples/cluster/pods.yaml",
    "numa-show": "numa show --state examples/numa/memory_manager_state "
    "--machine examples/numa/machine.yaml",
    "numa-admit": "numa admit examples/numa/pods.yaml --state examples/numa/memory_manager_state "
    "--machine examples/numa/machine.yaml --kubelet examples/numa/kubelet.yaml",
    "size": "size --history examples/records",
    "rules": "rules",
}


def screen(command: str) -> str:
    done = memqos(*shlex.split(command))
    return done.out + done.err


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_screen_is_as_stored(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = screen(COMMANDS[name])
    assert shown == (FOLDER / f"{name}.{width}.txt").read_text()
    assert max(map(display_width, shown.splitlines())) <= width
    assert "\033" not in shown


@pytest.mark.parametrize("name", ["explain", "rank-oom", "fit"])
def test_wide_has_every_column_however_narrow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    narrow, wide = screen(COMMANDS[name]), screen(f"{COMMANDS[name]} -o wide")
    assert "-o wide prints all columns" in " ".join(narrow.split())
    assert "-o wide" not in wide
    monkeypatch.delenv("COLUMNS")
    piped = screen(COMMANDS[name])
    tables = [line for line in piped.splitlines() if re.search(r"\d  +\S", line)]
    assert tables
    assert set(tables) <= set(wide.splitlines())


NUMBERS: Final = Table(
    [["name", "one", "two", "three"], ["a long name", "1", "22", "333"], ["b", "4444", "5", "6"]],
    drop={"two": 2},
)


def lines(table: Table, width: int) -> list[str]:
    return list(render([table], Screen(width=width)))


def test_columns_are_dropped_before_names_fold_and_numbers_stay_aligned() -> None:
    hidden: dict[str, None] = {}
    shown = list(render([NUMBERS], Screen(width=26), hidden))
    assert shown == [
        "name          one  three",
        "a long name     1    333",
        "b            4444      6",
    ]
    assert list(hidden) == ["two"]


def test_numbers_that_do_not_fit_continue_below() -> None:
    assert lines(NUMBERS, 18) == [
        "name          one",
        "a long name     1",
        "b            4444",
        "",
        "name         three",
        "a long name    333",
        "b                6",
    ]


def test_a_word_of_a_cell_breaks_only_where_nothing_else_helps() -> None:
    path = "/kubepods.slice/kubepods-burstable.slice"
    assert lines(Table([["cgroup", "now"], [path, "1"]]), 30) == [
        "cgroup                     now",
        "/kubepods.slice/kubepods-    1",
        "burstable.slice",
    ]


def test_wide_characters_take_two_columns() -> None:
    shown = lines(Table([["名前が長い 名前が長い 名前が長い", "1"], ["b", "22"]]), 28)
    assert [display_width(line) for line in shown] == [28, 10, 28]


def test_a_line_wraps_at_words_below_its_beginning_and_a_paragraph_at_its_indent() -> None:
    screen = Screen(width=20)
    assert list(render(["  note: one two three four"], screen)) == [
        "  note: one two",
        "    three four",
    ]
    assert list(render([Paragraph("one two three four five", "  · ", "    ")], screen)) == [
        "  · one two three",
        "    four five",
    ]


def test_only_the_styled_part_of_a_line_is_painted() -> None:
    painted = Screen(paint=lambda text, style: f"<{style}>{text}</>")
    line = Styled("warning  node/full", "warning", len("warning"))
    assert list(render([line], painted)) == ["<warning>warning</>  node/full"]


def test_colour_and_its_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    command = shlex.split(COMMANDS["doctor"])
    assert "\033" not in memqos(*command).out
    assert "\033[36minfo\033[0m     machine/swap" in memqos(*command, "--color", "always").out
    assert "\033[36m" in memqos("--color", "always", *command).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033[36m" in memqos(*command, "--color", "always").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explian",), "Did you mean one of: 'explain', 'plan'?"),
        (("rank", "evction"), "Did you mean 'eviction'?"),
        (("explain", "--capcity", "1Gi"), "Did you mean '--capacity'?"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_one_that_was_meant(
    arguments: tuple[str, ...], said: str
) -> None:
    done: Done = memqos(*arguments)
    assert done.code == 64
    assert said in done.err


def write() -> None:
    for name, command in COMMANDS.items():
        for width in WIDTHS:
            os.environ["COLUMNS"] = str(width)
            (FOLDER / f"{name}.{width}.txt").write_text(screen(command))


if __name__ == "__main__":
    write()
