"""The accessibility rules of axe-core, from the npm registry into a cache of the tests' own."""

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.browser.chromium import Tab

VERSION = "4.14.0"
_MEMBER = "package/axe.min.js"


def axe_source() -> str:
    """The script; a test that needs it is skipped where it cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "memqos-tests"
    file = cache / f"axe-{VERSION}.js"
    if not file.exists():
        if shutil.which("npm") is None:
            pytest.skip("needs npm, to get axe-core")
        cache.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["npm", "pack", "--silent", f"axe-core@{VERSION}"],
            cwd=cache,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"npm has no axe-core: {done.stderr.strip()[:200]}")
        packed = cache / done.stdout.strip().splitlines()[-1]
        with tarfile.open(fileobj=io.BytesIO(packed.read_bytes())) as archive:
            member = archive.extractfile(_MEMBER)
            assert member is not None
            file.write_bytes(member.read())
        packed.unlink()
    return file.read_text()


def violations(tab: Tab, source: str) -> list[str]:
    """The rules that the page breaks, each with the elements that break it."""
    tab.value(source + "\n;0")
    run = "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)"
    result = tab.ask("Runtime.evaluate", expression=run, returnByValue=True, awaitPromise=True)
    assert "exceptionDetails" not in result, result
    found: list[dict[str, Any]] = result["result"]["value"]
    return [f"{each['id']}: {[node['html'][:120] for node in each['nodes'][:3]]}" for each in found]
