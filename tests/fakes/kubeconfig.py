"""A kubeconfig that leads commands and agents to a server of a test's own."""

import json
from pathlib import Path

import pytest

AWAY = "http://127.0.0.1:1"


def lead_to(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts: dev, with the namespace shop; other, without one; away, where nobody answers."""
    config = {
        "current-context": "dev",
        "clusters": [
            {"name": "c", "cluster": {"server": url}},
            {"name": "away", "cluster": {"server": AWAY}},
        ],
        "contexts": [
            {"name": "dev", "context": {"cluster": "c", "namespace": "shop"}},
            {"name": "other", "context": {"cluster": "c"}},
            {"name": "away", "context": {"cluster": "away"}},
        ],
    }
    path = folder / "config"
    path.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
