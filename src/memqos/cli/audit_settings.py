"""The settings of an audit: one release and one kubelet configuration for all nodes."""

from typing import NamedTuple

import msgspec

from memqos.audit.census import ClusterObjects
from memqos.cli.audit_kubelets import FleetKubelets
from memqos.cli.cluster_access import LiveCluster
from memqos.cli.settings import SettingsArguments, resolve_settings, with_cluster_defaults
from memqos.errors import InputError, UnsupportedRelease
from memqos.host.census_reader import CensusReader
from memqos.release import Release
from memqos.settings.enablement import MEMORY_QOS, Enablement
from memqos.settings.resolver import NodeSettings, resolve


class AuditSettings(NamedTuple):
    """What the settings of an audit follow from, besides options."""

    objects: ClusterObjects
    census: CensusReader
    live: LiveCluster | None
    kubelets: FleetKubelets

    def resolve(self, options: SettingsArguments) -> NodeSettings:
        """Where no release is given, it is that of the newest kubelet, else the API server's."""
        if options.release is not None:
            return self._resolve_as_if_on(options)
        newest = self._newest_kubelet()
        if newest is None:
            live = self.live
            return self._resolve_as_if_on(
                options if live is None else with_cluster_defaults(live, options)
            )
        resolved = self._resolve_as_if_on(msgspec.structs.replace(options, release=str(newest)))
        note = f"the release is that of the newest kubelet, {newest}"
        return msgspec.structs.replace(resolved, notes=(note, *resolved.notes))

    def _newest_kubelet(self) -> Release | None:
        newest: Release | None = None
        node_by_version: dict[str, str] = {}
        for name, node in self.objects.nodes.items():
            info = node.status.node_info
            if info is not None and info.kubelet_version is not None:
                node_by_version.setdefault(info.kubelet_version, name)
        for version, name in node_by_version.items():
            try:
                release = Release.of(version)
            except UnsupportedRelease as error:
                fault = InputError(f"node {name}: {error.what}", hint=error.hint)
                if not any(str(each) == str(fault) for each in self.census.faults):
                    self.census.add_fault(fault)
                continue
            if newest is None or release.minor > newest.minor:
                newest = release
        return newest

    def _resolve_as_if_on(self, options: SettingsArguments) -> NodeSettings:
        """The settings; where only the release's default has MemoryQoS off, as if it were on.

        An audit asks what would change, too, and keeps that apart from what is wrong today. So it
        does where some kubelets have it on and others have not.
        """
        today = self._resolve_with(msgspec.structs.replace(options, assume_gate_on=False))
        enablement, mixed = today.enablement, self.kubelets.disagreement
        is_stated = MEMORY_QOS in options.gates
        if is_stated or (
            mixed is None and (enablement.is_on or enablement.source != "release default")
        ):
            return today
        gates = {**options.gates, MEMORY_QOS: True}
        resolved = self._resolve_with(msgspec.structs.replace(options, gates=gates))
        return msgspec.structs.replace(
            resolved,
            enablement=Enablement(state="as if on", source="configz", because=mixed)
            if mixed is not None
            else msgspec.structs.replace(
                enablement, state="as if on", because=f"off today, {enablement.because}"
            ),
        )

    def _resolve_with(self, options: SettingsArguments) -> NodeSettings:
        """The settings with what most kubelets run with, where they were asked."""
        typical = self.kubelets.typical
        if typical is None:
            return resolve_settings(options)
        resolved = resolve(typical.facts, options)
        enablement, asked = resolved.enablement, len(self.kubelets.answers)
        if asked == 1 or enablement.source == "stated":
            return resolved
        because = f"{enablement.because}; all {asked} kubelets queried agree"
        return msgspec.structs.replace(
            resolved, enablement=msgspec.structs.replace(enablement, because=because)
        )


def is_of_all_nodes(resolved: NodeSettings) -> bool:
    """Whether a person says that all nodes have this configuration.

    That of a running kubelet is one node's: what others reserve may differ with their size.
    """
    configuration = resolved.facts.configuration
    return resolved.is_configured and not (configuration and configuration.is_from_kubelet)
