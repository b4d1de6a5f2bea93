"""An API server, its identity, and surroundings that say nothing about any other."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.apiserver import FakeApiServer, fake_api_server
from tests.fakes.kubelet import TlsFiles, self_signed


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with fake_api_server() as served:
        yield served


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return self_signed(tmp_path_factory.mktemp("pki"), "api", "IP:127.0.0.1,DNS:api.example")


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("KUBE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
