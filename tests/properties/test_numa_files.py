"""Whatever has become of a state file, there is a verdict about it, and the file stays as it is."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from memqos.cli.main import cli
from memqos.errors import MemqosError
from memqos.numa.checkpoint import LoadedCheckpoint, encode_checkpoint, read_checkpoint
from memqos.numa.checkpoint_repair import salvage_state
from memqos.release import Release

EXAMPLE = Path(__file__).parents[2] / "examples" / "numa" / "memory_manager_state"
LOADED = read_checkpoint(EXAMPLE.read_text())
assert isinstance(LOADED, LoadedCheckpoint)
FILES = [encode_checkpoint(LOADED.state, Release.of(minor)).encode() for minor in (35, 37)]
WORDS = [
    b"-1",
    b"0",
    b"null",
    b'"x"',
    b"[]",
    b"{}",
    b"1e99",
    b"18446744073709551616",
    b"\xff",
    b"}",
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A state file cut off, continued after its end, or with something else in some places."""
    data = draw(st.sampled_from(FILES))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(start + draw(st.integers(0, 30)), len(data))
        put = draw(st.sampled_from(WORDS) | st.binary(max_size=8))
        data = draw(
            st.sampled_from([data[:start], data + put, data[:start] + put + data[end:], put + data])
        )
    return data


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def output_of(*arguments: str) -> str:
    """What a command says, on either channel; anything but an answer or a refusal is raised."""
    try:
        done = CliRunner().invoke(cli, arguments, standalone_mode=False, catch_exceptions=False)
    except MemqosError as error:
        return f"refused: {error}"
    return done.output


@given(data=damaged())
def test_a_damaged_file_gets_a_verdict_and_stays_as_it_is(folder: Path, data: bytes) -> None:
    file = folder / "memory_manager_state"
    repaired = folder / "memory_manager_state.repaired"
    file.write_bytes(data)
    for command in ("verify", "repair"):
        output = output_of("numa", "checkpoint", command, str(file))
        assert output.startswith((str(file), f"refused: {file}"))
        assert file.read_bytes() == data
    if repaired.exists():
        assert isinstance(read_checkpoint(repaired.read_text()), LoadedCheckpoint)
        repaired.unlink()
    assert sorted(os.listdir(folder)) == [file.name]


@given(st.text() | st.binary().map(lambda data: data.decode("latin1")))
def test_any_text_is_a_state_or_an_error(text: str) -> None:
    assert read_checkpoint(text) is not None
    assert salvage_state(text) is not None
