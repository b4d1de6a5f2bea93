"""Whether the values of an agent's configuration mean something, alone and together.

A later source may overrule an earlier one, so that `--mode observe` always works. What one source
says must not be idle by what the same, or an earlier one, says.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from memqos.agent.configuration.fields import GATES_PATH, ConfigPath
from memqos.errors import InputError, UnsupportedRelease
from memqos.host.kubelet import KubeletCredentials, KubeletEndpoint
from memqos.kube.selector import requirements
from memqos.release import Release
from memqos.release.gates import canonical
from memqos.serve.endpoints import parse_listen_address
from memqos.settings.settings import KNOWS_POLICY

BY_DEFAULT: Final = 0
BY_FILE: Final = 1
BY_VARIABLE: Final = 2
BY_FLAG: Final = 3
"""The sources, the later the higher."""

_LONGEST_SOCKET: Final = 107
"""Bytes the kernel takes for the path of a unix socket: sun_path has 108 with the NUL (unix(7))."""

EVERY_POD: Final = "picks every pod", "select pods by namespaces or labels, or remove it"
"""What is wrong with an empty canary, and what to do."""


Refuse = Callable[[str, str | None], InputError]
"""What is wrong and what to do → an error that says where."""


class GivenValue(NamedTuple):
    """A value, how late its source comes, and how to refuse it where it stands."""

    value: Any
    rank: int
    refuse: Refuse


GivenValues = dict[ConfigPath, GivenValue]

_SOURCE: Final[ConfigPath] = ("pods", "source")
_SOCKET: Final[ConfigPath] = ("pods", "socket")
_FILES: Final[ConfigPath] = ("pods", "files")
_KUBELET: Final[ConfigPath] = ("pods", "kubelet")
_CLUSTER: Final[ConfigPath] = ("pods", "cluster")
_NODE_NAME: Final[ConfigPath] = ("pods", "nodeName")
_ENDPOINT: Final[ConfigPath] = ("endpoint", "listen")
_ENDPOINT_FILES: Final[tuple[ConfigPath, ...]] = (("endpoint", "tlsCert"), ("endpoint", "tlsKey"))
_CREDENTIALS: Final[dict[str, ConfigPath]] = {
    "token_file": ("pods", "tokenFile"),
    "ca_file": ("pods", "caFile"),
    "client_cert": ("pods", "clientCert"),
    "client_key": ("pods", "clientKey"),
    "server_name": ("pods", "serverName"),
}


_FIELDS_OF_SOURCE: Final[dict[str, tuple[ConfigPath, ...]]] = {
    "auto": (_KUBELET, *_CREDENTIALS.values(), _SOCKET),
    "podsapi": (_SOCKET,),
    "kubelet": (_KUBELET, *_CREDENTIALS.values()),
    "cluster": (_CLUSTER,),
    "files": (_FILES,),
}
"""The fields that go with each value of pods.source; the name of the node goes with all."""


def resolve_pod_source(settings: GivenValues) -> GivenValues:
    """The settings with one source of pods: a later one takes the place of an earlier one."""
    source = settings.get(_SOURCE)
    if source is None:
        return _resolve_unnamed_source(settings)
    all_fields = {path for fields in _FIELDS_OF_SOURCE.values() for path in fields}
    others = [_FILES, _KUBELET, *([_CLUSTER] if _cluster(settings) else [])]
    if any(settings[path].rank > source.rank for path in others if path in settings):
        return _resolve_unnamed_source(
            {
                path: given
                for path, given in settings.items()
                if path not in {_SOURCE, *all_fields} or given.rank > source.rank
            }
        )
    idle = all_fields - set(_FIELDS_OF_SOURCE[source.value])
    kept = {
        path: given
        for path, given in settings.items()
        if path not in idle or given.rank >= source.rank
    }
    if source.value == "cluster":
        kept[_CLUSTER] = source._replace(value=True)
    return kept if source.value == "files" else {_FILES: source._replace(value=()), **kept}


def _resolve_unnamed_source(settings: GivenValues) -> GivenValues:
    files, endpoint = settings.get(_FILES), settings.get(_KUBELET) or _cluster(settings)
    if endpoint is None:
        return settings
    if files is None or endpoint.rank > files.rank:
        return {**settings, _FILES: endpoint._replace(value=())}
    if endpoint.rank == files.rank:
        return settings
    endpoint_fields = (_KUBELET, _CLUSTER, *_CREDENTIALS.values())
    return {
        path: given
        for path, given in settings.items()
        if path not in endpoint_fields or given.rank >= files.rank
    }


def _cluster(settings: GivenValues) -> GivenValue | None:
    given = settings.get(_CLUSTER)
    return given if given is not None and given.value else None


def invalid_values(settings: GivenValues) -> Iterator[InputError]:
    """Values that are of the right kind, and still mean nothing."""
    for check in _SINGLE_CHECKS:
        yield from check(settings)


def contradictions(settings: GivenValues) -> Iterator[InputError]:
    """Values that do not go together; of use only where each is right by itself."""
    for check in _JOINT_CHECKS:
        yield from check(settings)


def _release(settings: GivenValues) -> Iterator[InputError]:
    given = settings.get(("release",))
    try:
        release = None if given is None else Release.of(given.value)
    except UnsupportedRelease as error:
        assert given is not None
        yield given.refuse(error.what, error.hint)
        return
    for path, gate in settings.items():
        if path[:1] == GATES_PATH:
            try:
                if release is None:
                    canonical(path[1])
                else:
                    release.with_gates({path[1]: gate.value})
            except UnsupportedRelease as error:
                yield gate.refuse(error.what, error.hint)
    policy = settings.get(("policy",))
    if policy is not None and release is not None and not KNOWS_POLICY.at(release.minor):
        yield policy.refuse(
            f"Kubernetes {release} has no memoryReservationPolicy: it reserves every request",
            "remove it",
        )


def _selectors(settings: GivenValues) -> Iterator[InputError]:
    for section in ("select", "canary"):
        labels = settings.get((section, "labels"))
        if labels is not None:
            try:
                requirements(labels.value)
            except InputError as error:
                yield labels.refuse(error.what, error.hint)
        included, excluded = (section, "namespaces"), (section, "notNamespaces")
        if included in settings and excluded in settings:
            both = set(settings[included].value) & set(settings[excluded].value)
            if both:
                yield settings[excluded].refuse(
                    f"{', '.join(sorted(both))} is both included and excluded",
                    "keep one of the two",
                )


def _canary(settings: GivenValues) -> Iterator[InputError]:
    canary = [given for path, given in settings.items() if path[0] == "canary"]
    if canary and not any(given.value for given in canary):
        yield canary[0].refuse(*EVERY_POD)
    mode = settings.get(("mode",))
    if mode is not None and mode.value == "enforce":
        return
    overruled = BY_DEFAULT if mode is None else mode.rank
    if canary and max(given.rank for given in canary) >= overruled:
        yield canary[0].refuse("nothing is written in mode observe", "set mode: enforce as well")


def _ramp(settings: GivenValues) -> Iterator[InputError]:
    off = settings.get(("ramp", "disabled"))
    if off is None or not off.value:
        return
    for path in (("ramp", "step"), ("ramp", "interval")):
        given = settings.get(path)
        if given is not None and given.rank >= off.rank:
            yield given.refuse("has no effect while the ramp is disabled", "remove one of them")


def _numa(settings: GivenValues) -> Iterator[InputError]:
    state, numa = settings.get(("memoryManagerState",)), settings.get(("numa",))
    if state is None or (numa is not None and numa.value != "off"):
        return
    if numa is None or state.rank >= numa.rank:
        yield state.refuse("has no effect while numa is off", "set numa: state or allocate")


def _pod_source(settings: GivenValues) -> Iterator[InputError]:
    source = settings.get(_SOURCE)
    yield from _unnamed_source(settings) if source is None else _named_source(settings, source)
    yield from _kubelet_credentials(settings)


def _named_source(settings: GivenValues, source: GivenValue) -> Iterator[InputError]:
    """What pods.source leaves without a meaning, and what it lacks."""
    fields = _FIELDS_OF_SOURCE[source.value]
    for path in (_FILES, _KUBELET, _CLUSTER, _SOCKET):
        given = settings.get(path)
        if given is not None and given.value and path not in fields:
            yield given.refuse(f"has no effect while pods.source is {source.value}", "keep one")
    node_name, files = settings.get(_NODE_NAME), settings.get(_FILES)
    if source.value not in ("auto", "cluster"):
        yield from _idle_node_name(node_name)
    if source.value == "kubelet" and _KUBELET not in settings:
        yield source.refuse("the kubelet's address is missing", "give it in pods.kubelet")
    if source.value == "files" and files is not None and not files.value:
        yield files.refuse("no pods would be known", "name a file or a folder")


def _unnamed_source(settings: GivenValues) -> Iterator[InputError]:
    files, kubelet, cluster = settings.get(_FILES), settings.get(_KUBELET), _cluster(settings)
    socket = settings.get(_SOCKET)
    if socket is not None:
        yield socket.refuse("is for the PodsAPI, which is not the source", "set pods.source")
    if cluster is None:
        yield from _idle_node_name(settings.get(_NODE_NAME))
    if cluster is not None and (kubelet is not None or (files is not None and files.value)):
        yield cluster.refuse("pods come from files, the kubelet or the cluster", "keep one")
    if kubelet is not None and files is not None and files.value:
        yield kubelet.refuse("pods come from files or from the kubelet", "keep one of the two")
    if kubelet is None and cluster is None and files is not None and not files.value:
        yield files.refuse("no pods would be known", "name a file, a folder or a kubelet")


def _idle_node_name(node_name: GivenValue | None) -> Iterator[InputError]:
    # A DaemonSet sets the variable, whatever the source.
    if node_name is not None and node_name.rank != BY_VARIABLE:
        yield node_name.refuse("needs a cluster as the source of pods", "set pods.cluster")


def _kubelet_credentials(settings: GivenValues) -> Iterator[InputError]:
    kubelet = settings.get(_KUBELET)
    given = {name: settings[path] for name, path in _CREDENTIALS.items() if path in settings}
    if kubelet is None:
        for credential in given.values():
            yield credential.refuse("needs a kubelet as the source of pods", "give its address")
        return
    if "client_key" in given and "client_cert" not in given:
        yield given["client_key"].refuse("a key without its certificate", "give clientCert too")
    try:
        values = {name: credential.value for name, credential in given.items()}
        KubeletEndpoint(kubelet.value, KubeletCredentials(**values))
    except InputError as error:
        yield kubelet.refuse(error.what, error.hint)


def _addresses(settings: GivenValues) -> Iterator[InputError]:
    for path in (("listen",), _ENDPOINT):
        listen = settings.get(path)
        if listen is not None:
            try:
                parse_listen_address(listen.value)
            except InputError as error:
                yield listen.refuse(error.what, error.hint)
    for path in (("stateSocket",), _SOCKET):
        socket = settings.get(path)
        if socket is not None and len(socket.value.encode("utf-8", "replace")) > _LONGEST_SOCKET:
            yield socket.refuse(f"longer than {_LONGEST_SOCKET} bytes", "choose a shorter path")


def _endpoint(settings: GivenValues) -> Iterator[InputError]:
    """The read endpoint has TLS, or is off."""
    listen = settings.get(_ENDPOINT)
    files = {path: settings[path] for path in _ENDPOINT_FILES if path in settings}
    if listen is not None and len(files) < len(_ENDPOINT_FILES):
        hint = "give endpoint.tlsCert and endpoint.tlsKey"
        yield listen.refuse("the read endpoint needs TLS, as callers send tokens", hint)
    if listen is None:
        for given in files.values():
            yield given.refuse("is for the read endpoint, which is off", "set endpoint.listen")


_Check = Callable[[GivenValues], Iterator[InputError]]
_SINGLE_CHECKS: Final[tuple[_Check, ...]] = (_release, _selectors, _addresses)
_JOINT_CHECKS: Final[tuple[_Check, ...]] = (_canary, _ramp, _numa, _pod_source, _endpoint)
