"""Manifests are loaded from files, folders and standard input; the rest is reported."""

import io
import os
import sys
from pathlib import Path

import pytest

from memqos.errors import InputError
from memqos.host import manifest_files
from memqos.host.manifest_files import load_files


def loaded(*paths: Path | str) -> dict[str, bytes]:
    found = dict(load_files(map(str, paths)))
    assert not any(isinstance(data, InputError) for data in found.values()), found
    return {name: data for name, data in found.items() if isinstance(data, bytes)}


def fault(*paths: Path | str) -> str:
    ((_, error),) = load_files(map(str, paths))
    assert isinstance(error, InputError)
    return str(error)


def put(path: Path, content: bytes = b"a: 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_file_is_loaded_whatever_its_name(tmp_path: Path) -> None:
    file = put(tmp_path / "pod.txt", b"\0\xff")
    assert loaded(file) == {str(file): b"\0\xff"}


def test_files_come_in_the_order_they_are_given(tmp_path: Path) -> None:
    second, first = put(tmp_path / "a.yaml"), put(tmp_path / "b.yaml")
    assert list(loaded(first, second)) == [str(first), str(second)]


def test_files_are_loaded_only_when_their_turn_comes(tmp_path: Path) -> None:
    file = put(tmp_path / "a.yaml")
    late = tmp_path / "late.yaml"
    found = load_files([str(file), str(late)])
    next(found)
    put(late)
    assert next(found) == (str(late), b"a: 1\n")


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: \xff")))
    assert loaded("-") == {"<stdin>": b"a: \xff"}


def test_a_folder_gives_its_manifests_in_order(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "sub/d.json", "sub/deeper/e.yaml", "c.json", "a-sub/x.yaml"):
        put(tmp_path / name)
    for name in ("notes.txt", "yaml", "a.yaml.bak", ".hidden.yaml", ".git/config.yaml"):
        put(tmp_path / name)
    assert [os.path.relpath(name, tmp_path) for name in loaded(tmp_path)] == [
        "a.yaml",
        "b.yml",
        "c.json",
        "a-sub/x.yaml",
        "sub/d.json",
        "sub/deeper/e.yaml",
    ]


def test_a_hidden_folder_is_walked_when_given_by_name(tmp_path: Path) -> None:
    file = put(tmp_path / ".config" / "a.yaml")
    assert list(loaded(file.parent)) == [str(file)]


def test_links_are_followed_to_files_but_not_to_folders(tmp_path: Path) -> None:
    target = put(tmp_path / "real" / "a.yaml")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.yaml").symlink_to(target)
    (folder / "loop").symlink_to(folder)
    (folder / "gone.yaml").symlink_to(tmp_path / "nowhere")
    assert list(loaded(folder)) == [str(folder / "link.yaml")]


def test_a_pipe_in_a_folder_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    file = put(tmp_path / "a.yaml")
    assert list(loaded(tmp_path)) == [str(file)]


def test_a_pipe_given_by_name_is_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a: 1\n")
    os.close(writing)
    try:
        assert loaded(f"/dev/fd/{reading}") == {f"/dev/fd/{reading}": b"a: 1\n"}
    finally:
        os.close(reading)


def test_a_missing_file_is_reported_and_the_others_are_loaded(tmp_path: Path) -> None:
    missing, file = tmp_path / "missing.yaml", put(tmp_path / "a.yaml")
    (first, error), second = load_files([str(missing), str(file)])
    assert first == str(missing)
    assert str(error) == f"{missing}: no such file or directory – check the path"
    assert second == (str(file), b"a: 1\n")


def test_a_folder_without_manifests_is_reported(tmp_path: Path) -> None:
    put(tmp_path / "notes.txt")
    assert fault(tmp_path) == (
        f"{tmp_path}: no manifest in this folder – files must end in .yaml, .yml, .json"
    )


def refuse(path: str) -> None:
    raise PermissionError(13, "Permission denied", path)


def test_a_file_without_rights_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path / "a.yaml")
    monkeypatch.setattr("builtins.open", lambda path, mode: refuse(path))
    assert fault(file) == f"{file}: permission denied – run as a user who can read it"


def test_a_folder_without_rights_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "scandir", refuse)
    assert fault(tmp_path) == f"{tmp_path}: permission denied – run as a user who can read it"


def test_a_fault_while_reading_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Failing()))
    assert fault("-") == "<stdin>: input/output error"


def test_a_file_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_files, "FILE_SIZE_LIMIT", 3 << 20)
    fits, exceeds = tmp_path / "fits.yaml", tmp_path / "exceeds.yaml"
    put(fits, b"#" * (3 << 20))
    put(exceeds, b"#" * ((3 << 20) + 1))
    assert len(loaded(fits)[str(fits)]) == 3 << 20
    assert fault(exceeds) == f"{exceeds}: larger than 3Mi – split it into smaller files"


def test_a_name_in_another_encoding_can_still_be_shown(tmp_path: Path) -> None:
    missing = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.yaml")
    assert fault(missing).encode().startswith(f"{tmp_path}/\N{REPLACEMENT CHARACTER}".encode())
