"""Where a node keeps its pods' cgroups: names to paths, and paths back to names.

Paths are those of the unified hierarchy as the kernel shows them, "/" being its mount point.

    cgroupfs  /kubepods/burstable/pod<uid>/<container>
    systemd   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/<container>

A slice's name spells out all of its ancestors, joined by "-". The kubelet therefore turns every
"-" of its own names into "_", which no name it makes itself may contain, so the way back is exact.

Names out of manifests and runtimes reach a path only after a check: see `pod` and `container`.
"""

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from memqos.errors import InputError
from memqos.kube.pod import QosClass

if TYPE_CHECKING:
    from memqos.kube.kubelet import KubeletConfiguration

Driver = Literal["cgroupfs", "systemd"]
RuntimeName = Literal["containerd", "cri-o"]

_MOST_NESTED_FIRST: tuple[QosClass, ...] = ("Burstable", "BestEffort", "Guaranteed")
_SLICE = ".slice"
_INNER = "/container"

# Kubernetes does not validate UIDs. API servers make them of hexadecimal digits and "-", kubelets
# (static pods) of hexadecimal digits alone. NewCgroupName() panics at "/" and "_", which would not
# survive the mapping of "-" to "_" for systemd (kubelet cm/cgroup_manager_linux.go).
_POD_UID = re.compile(r"[A-Za-z0-9-]+")
_CONTAINER_ID = re.compile(r"[A-Za-z0-9]+")
_POD_PATH = re.compile(
    r"/kubepods(/burstable|/besteffort)?/pod[A-Za-z0-9-]+$"
    r"|[/-]kubepods(-burstable|-besteffort)?-pod[A-Za-z0-9_]+\.slice$"
)
_QOS_PATH = re.compile(
    r"/kubepods/(burstable|besteffort)$|[/-]kubepods-(burstable|besteffort)\.slice$"
)
_KUBEPODS_PATH = re.compile(r"/kubepods$|[/-]kubepods\.slice$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]+\.(?:slice|scope|service)")
_LONGEST_NAME = 255  # bytes: NAME_MAX of the kernel, UNIT_NAME_MAX (256 with NUL) of systemd

# containerd passes the bare ID, or slice:cri-containerd:ID, which runc and crun turn into a scope
# (internal/cri/server/podsandbox/helpers_linux.go, getCgroupsPath); CRI-O's prefix is crio.
_CONTAINER_FORMS: dict[Driver, dict[RuntimeName, tuple[str, str]]] = {
    "cgroupfs": {"containerd": ("", ""), "cri-o": ("crio-", "")},
    "systemd": {"containerd": ("cri-containerd-", ".scope"), "cri-o": ("crio-", ".scope")},
}


class CgroupPlace(Struct, frozen=True):
    """What a cgroup is to Kubernetes; what does not apply is None."""

    kind: Literal["kubepods", "qos", "pod", "container", "inner"]
    qos_class: QosClass | None = None
    pod_uid: str | None = None
    container_id: str | None = None
    runtime: RuntimeName | None = None


class CgroupNames(Struct, frozen=True):
    """The cgroups of one node: its driver and the three parents of pods; see `cgroup_names`."""

    driver: Driver
    kubepods: str
    burstable: str
    besteffort: str

    @property
    def levels(self) -> tuple[str, str, str]:
        """The cgroups above pods."""
        return self.kubepods, self.burstable, self.besteffort

    def qos(self, qos_class: QosClass) -> str:
        """The parent of every pod of this class; Guaranteed pods live in kubepods itself."""
        if qos_class == "Burstable":
            return self.burstable
        return self.besteffort if qos_class == "BestEffort" else self.kubepods

    def pod(self, uid: str, qos_class: QosClass) -> str:
        """The pod's cgroup; a UID with anything but letters, digits and "-" is refused."""
        check_uid(uid)
        return _child(self.qos(qos_class), self._pod_name(uid, qos_class))

    def container(self, pod: str, container_id: str, runtime: RuntimeName) -> str:
        """The container's cgroup in its pod's; the ID is the bare one, without `containerd://`."""
        if not _CONTAINER_ID.fullmatch(container_id):
            raise InputError(
                f"container ID {container_id[:80]!r} cannot name a cgroup",
                hint="an ID has only letters and digits; remove the part before `://`",
            )
        prefix, suffix = _CONTAINER_FORMS[self.driver][runtime]
        return _child(pod, f"{prefix}{container_id}{suffix}")

    def reserved_cgroup(self, name: str) -> str:
        """The cgroup meant by kubeReservedCgroup or systemReservedCgroup.

        The name is absolute, not below the cgroup root. With systemd only its last part counts.
        """
        parts = _parts(name, field=None)
        if not parts:
            raise InputError(
                f"reserved cgroup {name!r} is not a cgroup",
                hint="give an absolute name such as /podruntime, or /podruntime.slice for systemd",
            )
        if self.driver == "cgroupfs":
            return _plain_path(parts)
        return _slice_path(parts[-1].removesuffix(_SLICE).split("-"))

    def recognise(self, path: str) -> CgroupPlace | None:
        """What the cgroup at `path` is; None where it is no part of Kubernetes' layout.

        A pod's pause container has a name like any other's. CRI-O's conmon, and whatever a
        container makes within its own cgroup, are None.
        """
        if path == self.kubepods:
            return CgroupPlace("kubepods")
        for qos_class in _MOST_NESTED_FIRST:
            parent = self.qos(qos_class)
            if path == parent:
                return CgroupPlace("qos", qos_class)
            if path.startswith(f"{parent}/"):
                return self._recognise_below(path.removeprefix(f"{parent}/"), qos_class)
        return None

    def _recognise_below(self, rest: str, qos_class: QosClass) -> CgroupPlace | None:
        name, _, within = rest.partition("/")
        uid = self._pod_uid(name, qos_class)
        if uid is None:
            return None
        if not within:
            return CgroupPlace("pod", qos_class, uid) if rest == name else None
        # With the systemd driver crun puts the processes into a cgroup "container" below the scope
        # (libcrun/cgroup-systemd.c; another name by the annotation run.oci.systemd.subgroup).
        scope = within.removesuffix(_INNER) if self.driver == "systemd" else within
        for runtime, (prefix, suffix) in _CONTAINER_FORMS[self.driver].items():
            container_id = scope.removeprefix(prefix).removesuffix(suffix)
            spelt = f"{prefix}{container_id}{suffix}" == scope
            if spelt and _CONTAINER_ID.fullmatch(container_id):
                kind: Literal["container", "inner"] = "container" if scope == within else "inner"
                return CgroupPlace(kind, qos_class, uid, container_id, runtime)
        return None

    def _pod_name(self, uid: str, qos_class: QosClass) -> str:
        if self.driver == "cgroupfs":
            return f"pod{uid}"
        stem = self.qos(qos_class).rpartition("/")[2].removesuffix(_SLICE)
        return f"{stem}-pod{_escape(uid)}{_SLICE}"

    def _pod_uid(self, name: str, qos_class: QosClass) -> str | None:
        before, _, after = self._pod_name("", qos_class).rpartition("pod")
        uid = name.removeprefix(f"{before}pod").removesuffix(after)
        if self.driver == "systemd":
            uid = uid.replace("_", "-")
        # A name that does not come out the same when spelled from its UID is no pod's.
        spelt = self._pod_name(uid, qos_class) == name
        return uid if spelt and _POD_UID.fullmatch(uid) else None


def check_uid(uid: str) -> None:
    """Refuse a pod UID that could not be part of a path."""
    if not _POD_UID.fullmatch(uid):
        raise InputError(
            f"pod UID {uid[:80]!r} cannot name a cgroup",
            hint='a UID has only letters, digits and "-": correct metadata.uid of the pod',
        )


def cgroup_names(driver: Driver, cgroup_root: str = "/") -> CgroupNames:
    """The cgroups of a node whose kubelet has this cgroupDriver and cgroupRoot ("" means "/").

    The root is written as a cgroupfs path for both drivers: /a/b is a-b.slice to systemd.
    """
    parts = _parts(cgroup_root, field="cgroupRoot")
    if driver == "cgroupfs":
        kubepods = _plain_path([*parts, "kubepods"])
        return CgroupNames(driver, kubepods, f"{kubepods}/burstable", f"{kubepods}/besteffort")
    stem = [*(_escape(part) for part in parts), "kubepods"]
    burstable, besteffort = [*stem, "burstable"], [*stem, "besteffort"]
    return CgroupNames(driver, _slice_path(stem), _slice_path(burstable), _slice_path(besteffort))


def names_of(config: "KubeletConfiguration") -> CgroupNames:
    """The cgroups of a node with this configuration."""
    return cgroup_names(config.driver, config.cgroup_root)


def inner(container: str) -> str:
    """The cgroup that crun makes within a container's scope, and where its processes are."""
    return container + _INNER


def outer(path: str) -> str:
    """The scope around a cgroup that crun created in it; any other cgroup itself."""
    return path.removesuffix(_INNER) if path.endswith(f".scope{_INNER}") else path


def is_pod(path: str) -> bool:
    """Whether a cgroup is a pod's, by its name and those above it, whatever the node's layout."""
    return _POD_PATH.search(path) is not None


def kind_of(path: str) -> Literal["kubepods", "qos", "pod", "container"] | None:
    """What a cgroup is to Kubernetes, by the same names; None where no kubelet uses the name.

    The cgroup that crun makes within a container's scope is the container's.
    """
    if _KUBEPODS_PATH.search(path):
        return "kubepods"
    if _QOS_PATH.search(path):
        return "qos"
    if is_pod(path):
        return "pod"
    is_in_pod = is_pod(outer(path).rpartition("/")[0])
    return "container" if is_in_pod and container_of(path) is not None else None


def within_container(path: str) -> tuple[str, ...]:
    """Child cgroups of a container that its runtime creates: the one that crun makes in a scope.

    The container has created every other one itself.
    """
    is_scope = path.endswith(".scope") and is_pod(path.rpartition("/")[0])
    return (_INNER.removeprefix("/"),) if is_scope else ()


def systemd_unit(path: str) -> str | None:
    """The systemd unit whose cgroup this is, by its path; None where it is no unit's.

    Slices are in those that their names spell out, and scopes and services are in slices. A cgroup
    that is only named like a unit, as a container may make one, is in neither.
    """
    _, *above, name = path.split("/") if path.startswith("/") else ("", "")
    slices = [*above, name] if name.endswith(_SLICE) else above
    stem = slices[-1].removesuffix(_SLICE).split("-") if slices else []
    spelt = ["-".join(stem[: depth + 1]) + _SLICE for depth in range(len(stem))]
    is_unit = _UNIT.fullmatch(name) is not None and len(name) <= _LONGEST_NAME
    return name if is_unit and slices == spelt else None


class ContainerName(NamedTuple):
    """The parts of the name of a container's cgroup."""

    container_id: str
    runtime: RuntimeName
    is_inner: bool
    """Whether this is the cgroup that crun makes within the scope."""


def container_of(path: str) -> ContainerName | None:
    """The container of a cgroup, by its name alone; None where the name is no container's."""
    name = path.removesuffix(_INNER).rpartition("/")[2]
    for driver, forms in _CONTAINER_FORMS.items():
        for runtime, (prefix, suffix) in reversed(forms.items()):
            if not (name.startswith(prefix) and name.endswith(suffix)):
                continue
            container_id = name.removeprefix(prefix).removesuffix(suffix)
            is_inner = driver == "systemd" and path.endswith(_INNER)
            if _CONTAINER_ID.fullmatch(container_id):
                return ContainerName(container_id, runtime, is_inner)
    return None


def _escape(part: str) -> str:
    return part.replace("-", "_")


def _parts(path: str, *, field: str | None) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if "." in parts or ".." in parts or _CONTROL.search(path):
        raise InputError(
            f"cgroup {path[:80]!r} is not a plain absolute path",
            field=field,
            hint='remove ".", ".." and control characters',
        )
    return parts


def _plain_path(parts: list[str]) -> str:
    for part in parts:
        _check_length(part)
    return "/" + "/".join(parts)


def _slice_path(stem: list[str]) -> str:
    if "" in stem:
        raise InputError(
            f"{'-'.join(stem)}{_SLICE} is not a valid systemd slice",
            hint='"-" separates a slice from its parent: it cannot come first, last or twice',
        )
    names = ["-".join(stem[: depth + 1]) + _SLICE for depth in range(len(stem))]
    return _plain_path(names)


def _child(parent: str, name: str) -> str:
    _check_length(name)
    return f"{parent}/{name}"


def _check_length(name: str) -> None:
    if len(name.encode(errors="surrogatepass")) > _LONGEST_NAME:
        raise InputError(
            f"cgroup name {name[:80]!r}… is longer than {_LONGEST_NAME} bytes",
            hint="the kernel does not allow that: shorten the name it comes from",
        )
