"""What a message says: where, what, and the next step."""

import pytest

from memqos.errors import (
    InputError,
    MemqosError,
    Unreachable,
    UnsupportedRelease,
    WriteRefused,
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            InputError("not a quantity", file="pod.yaml", line=3, column=9, hint="write 1Gi"),
            "pod.yaml:3:9: not a quantity – write 1Gi",
        ),
        (InputError("not YAML", file="pod.yaml", line=3, column=9), "pod.yaml:3:9: not YAML"),
        (InputError("not YAML", file="pod.yaml", line=3), "pod.yaml:3: not YAML"),
        (InputError("is empty", file="pod.yaml"), "pod.yaml: is empty"),
        (InputError("is a list", field="spec.overhead"), "spec.overhead: is a list"),
        (
            InputError("is a list", file="pod.yaml", line=7, column=1, field="spec.overhead"),
            "pod.yaml:7:1: spec.overhead: is a list",
        ),
        (InputError("is empty"), "is empty"),
        (InputError("is empty", hint="pipe a pod in"), "is empty – pipe a pod in"),
        (InputError("is empty", file="-", line=0, column=0), "-:0:0: is empty"),
        (UnsupportedRelease("1.99 is new", hint="upgrade"), "1.99 is new – upgrade"),
        (Unreachable("no answer"), "no answer"),
    ],
)
def test_a_message_says_where_what_and_what_to_do(error: MemqosError, message: str) -> None:
    assert str(error) == message


def test_a_refused_write_names_the_file_and_the_value() -> None:
    error = WriteRefused("/sys/fs/cgroup/a/memory.high", "4096", errno=16, hint="retry")
    assert str(error) == "/sys/fs/cgroup/a/memory.high: cannot write '4096' – retry"
    assert (error.path, error.value, error.errno) == ("/sys/fs/cgroup/a/memory.high", "4096", 16)


def test_where_is_separate_from_what() -> None:
    error = InputError("is empty", file="pod.yaml", line=2, column=5, field="spec", hint="fill it")
    assert (error.where, error.what, error.hint) == ("pod.yaml:2:5: spec", "is empty", "fill it")
    assert (error.file, error.line, error.column, error.field) == ("pod.yaml", 2, 5, "spec")


@pytest.mark.parametrize("kind", [InputError, UnsupportedRelease, WriteRefused, Unreachable])
def test_every_error_is_caught_as_one_kind(kind: type[MemqosError]) -> None:
    assert issubclass(kind, MemqosError)
    assert not issubclass(kind, OSError | ValueError)
