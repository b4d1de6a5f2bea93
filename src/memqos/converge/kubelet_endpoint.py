"""Read a kubelet's version, configuration and memory QoS metrics from its own endpoint."""

import re
from typing import Final

import msgspec

from memqos.errors import InputError, MemqosError
from memqos.host.kubelet import KubeletEndpoint, KubeletRefusal
from memqos.settings.facts import CONFIGZ_PATH, RawKubeletConfig

_MEMORY_QOS: Final = "kubelet_memory_qos_"
_BUILD: Final = re.compile(r'^kubernetes_build_info\{[^}]*\bgit_version="([^"]+)"', re.MULTILINE)


class EndpointFacts(msgspec.Struct, frozen=True):
    """What a kubelet answered, and why the rest is missing."""

    version: str | None = None
    metrics: tuple[str, ...] = ()
    configuration: RawKubeletConfig | None = None
    notes: tuple[str, ...] = ()
    is_unreachable: bool = False
    """Whether it did not answer a request at all: it may be down, or starting."""


class _Configz(msgspec.Struct, frozen=True):
    kubeletconfig: msgspec.Raw


def configuration_in(answer: bytes, name: str) -> RawKubeletConfig:
    """The configuration that an answer to /configz holds; one that holds none is refused."""
    try:
        found = msgspec.json.decode(answer, type=_Configz).kubeletconfig
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InputError("the response has no configuration", file=name) from None
    return RawKubeletConfig(name, bytes(found), is_in_use=True)


class _KubeletQueries:
    """Requests to one kubelet, and notes on those that failed."""

    def __init__(self, endpoint: KubeletEndpoint) -> None:
        self._endpoint = endpoint
        self.notes: list[str] = []
        self.is_unreachable = False

    def read_metrics(self) -> str:
        return (self._get("/metrics") or b"").decode("utf-8", "replace")

    def read_configuration(self) -> RawKubeletConfig | None:
        """The configuration it runs with; its read-only port does not serve it (kubelet
        server/server.go, ListenAndServeKubeletReadOnlyServer)."""
        answer = self._get(CONFIGZ_PATH) if self._endpoint.is_secure else None
        if answer is None:
            return None
        try:
            return configuration_in(answer, f"{self._endpoint.url}{CONFIGZ_PATH}")
        except InputError as error:
            self.notes.append(str(error))
            return None

    def _get(self, path: str) -> bytes | None:
        if self.is_unreachable:
            return None
        try:
            return self._endpoint.get(path)
        except KubeletRefusal as error:
            self.notes.append(str(error))
        except MemqosError as error:
            self.notes.append(str(error))
            self.is_unreachable = True
        return None


def query_kubelet(
    endpoint: KubeletEndpoint, *, version: bool = True, configuration: bool = True
) -> EndpointFacts:
    """Read all of it, or a part; a kubelet may answer one request and deny another."""
    queries = _KubeletQueries(endpoint)
    metrics = queries.read_metrics() if version else ""
    build = _BUILD.search(metrics)
    found = queries.read_configuration() if configuration else None
    return EndpointFacts(
        version=None if build is None else build[1],
        metrics=tuple(line for line in metrics.splitlines() if line.startswith(_MEMORY_QOS)),
        configuration=found,
        notes=tuple(queries.notes),
        is_unreachable=queries.is_unreachable,
    )
