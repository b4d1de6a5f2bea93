"""Where a terminal is not UTF-8, a command prints ASCII stand-ins, and its data says the same."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from tests.commands import ROOT

C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "iso-8859-1"}
"""As LC_ALL=de_DE.ISO-8859-1, on machines that do not have that locale."""


def printed(arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[bytes, bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "memqos.cli.main", *arguments],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )
    assert b"Traceback" not in done.stderr
    return done.stdout, done.stderr


EXPLAIN = ("explain", "examples/shop.yaml", "--capacity", "16Gi")


@pytest.mark.parametrize("environment", [C_LOCALE, LATIN])
def test_signs_have_stand_ins_and_columns_stay_aligned(environment: dict[str, str]) -> None:
    plain, _ = printed(EXPLAIN, environment)
    whole, _ = printed(EXPLAIN, {"PYTHONUTF8": "1"})
    shown = plain.decode("iso-8859-1").splitlines()
    expected = whole.decode().splitlines()
    assert [len(line) for line in shown] == [len(line) for line in expected]
    assert "` api" in plain.decode("iso-8859-1")
    assert (b"\xb7" in plain) == (environment is LATIN)


def test_errors_and_help_are_ascii_in_the_c_locale() -> None:
    out, _ = printed(("explain", "--help"), C_LOCALE)
    assert out.isascii()
    assert b"FILE..." in out
    _, err = printed(("explain", "missing/\u00e4.yaml"), C_LOCALE)
    assert err.isascii()


@pytest.mark.parametrize("environment", [C_LOCALE, LATIN])
def test_data_says_the_same_in_any_encoding(environment: dict[str, str]) -> None:
    command = ("why", "pod/api-1", "-n", "shop", "--records", "examples/records")
    for form, load in (("json", json.loads), ("yaml", yaml.safe_load)):
        plain, _ = printed((*command, "-o", form), environment)
        whole, _ = printed((*command, "-o", form), {"PYTHONUTF8": "1"})
        assert plain.isascii()
        assert not whole.isascii()
        assert load(plain) == load(whole)


def test_a_picture_has_references_for_what_the_encoding_lacks() -> None:
    plain, _ = printed((*EXPLAIN, "-o", "svg"), C_LOCALE)
    whole, _ = printed((*EXPLAIN, "-o", "svg"), {"PYTHONUTF8": "1"})
    assert whole.decode().encode("ascii", "xmlcharrefreplace") == plain
