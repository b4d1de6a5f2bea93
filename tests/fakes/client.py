"""What tests of clients share: somebody who asks, and what they are told when they may not."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from tests.eventually import PATIENCE
from tests.fakes.apiserver import FakeApiServer

from memqos.errors import MemqosError
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.kubeconfig import Cluster, ClusterAccess, User

with_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="certificates are made with openssl: install it"
)


def client(server: FakeApiServer, user: User | None = None, **cluster: Any) -> ApiClient:
    asked = ClusterAccess(Cluster(server=server.url, **cluster), user or User(), "a test")
    return ApiClient(asked, read_timeout=PATIENCE, sleep=lambda _: None)


def refusal(ask: Callable[[], object]) -> str:
    with pytest.raises(MemqosError) as caught:
        ask()
    return str(caught.value)
