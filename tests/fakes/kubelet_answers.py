"""A kubelet's endpoint and Node as an agent's own sources see them, without a socket."""

from pathlib import Path
from typing import Any, Final, Literal

import pytest
from tests.fakes.beside_kubelet import NodeWithKubelet
from tests.fakes.scripted_kubelet import Settings

from memqos.agent.settings_source import SettingsSource
from memqos.converge import running_kubelet
from memqos.converge.kubelet_endpoint import EndpointFacts
from memqos.host.kubelet import KubeletEndpoint
from memqos.kube.node import Node, NodeStatus, NodeSystemInfo
from memqos.settings.facts import RawKubeletConfig

URL: Final = "https://127.0.0.1:10250"


class NodeWithRealSources(NodeWithKubelet):
    """The real sources of settings beside a scripted kubelet, whose Node may lag behind."""

    def __init__(
        self, folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, **options: Any
    ) -> None:
        self.version = f"v1.{settings.minor}.0"
        """As the Node names it, until it is written again."""
        self.node_lags = 0.0
        """Seconds from the first answer of a kubelet until its Node names its version."""
        self.configz = settings.configuration
        self.answered: list[tuple[float, float]] = []
        """When the kubelet was asked for what it told, and when the answer came."""
        self.asked_at = float("-inf")
        self.manner: Literal["answers", "refuses", "is silent"] = "answers"
        monkeypatch.setattr(running_kubelet, "query_kubelet", self._ask)
        super().__init__(folder, settings, **options)

    def start(self, **options: Any) -> None:
        super().start(**options)
        assert self.asked_at == self.now  # whatever a former agent was waiting for

    def prepare(self) -> None:
        super().prepare()
        self.reader.settings_source = SettingsSource(
            self.reader.fs, self.reader.roots, lambda: self.now, self.asker.submit
        )
        self.reader.node_settings = lambda: self.reader.settings_source.resolve(  # type: ignore[method-assign]
            self.reader.configuration,
            Node(status=NodeStatus(node_info=NodeSystemInfo(kubelet_version=self._node_version()))),
            KubeletEndpoint(URL),
        )

    @property
    def settings_known_at(self) -> float:
        if self.manner == "is silent":
            return float("inf")
        return self.answers_at + self.node_lags

    def _node_version(self) -> str:
        if self.now >= self.answers_at + self.node_lags:
            self.version = f"v1.{self.settings.minor}.0"
        return self.version

    def restart(self, settings: Settings | None = None) -> None:
        self._node_version()
        super().restart(settings)
        self.configz = self.settings.configuration

    def _agent_writes(self, path: str, file: str, value: str) -> None:
        """A hole is closed by an answer to a question that was asked after it had opened."""
        dropped = self.dropped_at.get((path, file))
        if dropped is not None and self.read(path, file) == "0" != value:
            assert any(asked >= dropped and at <= self.now for asked, at in self.answered), (
                f"{self.now}: {path}/{file} was 0 from {dropped} on, answers: {self.answered[-3:]}"
            )
        super()._agent_writes(path, file, value)

    def _ask(
        self, _endpoint: object, *, version: bool = True, configuration: bool = True
    ) -> EndpointFacts:
        self.asked_at = self.now
        if self.manner == "is silent" or self.now < self.answers_at:
            return EndpointFacts(notes=("nothing listens there",), is_unreachable=True)
        if self.manner == "refuses":
            return EndpointFacts(notes=("the user may not read /configz (403)",))
        self.answered.append((self.now, self.now + self.asker.seconds))
        kept = self.scripted.sums() if self.answers_at else {}  # none before its first start
        for file, amount in kept.items():
            if self.read(*file) == str(amount):
                self.steady.setdefault(file, set()).add(str(amount))
        return EndpointFacts(
            configuration=RawKubeletConfig(f"{URL}/configz", self.configz.encode(), is_in_use=True)
        )
