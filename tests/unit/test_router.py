"""Who writes a value, and why."""

import socket
from pathlib import Path

import pytest
from tests.fakes.node import RULE

from memqos.converge.router import Router, WriteVia, count_routes, route
from memqos.converge.steps import WriteStep, batch_steps
from memqos.errors import Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.host.owner_discovery import OwnerEndpoints, discover_owners
from memqos.plan.changes import Change
from memqos.plan.names import container_of
from memqos.plan.setting import Setting
from memqos.plan.tree import Level

SLICE = "/kubepods.slice/kubepods-pod1.slice"
SCOPE = f"{SLICE}/cri-containerd-abc.scope"
INNER = f"{SCOPE}/container"
FOLDER = "/kubepods/burstable/pod1"
BARE = f"{FOLDER}/abc"
ALL = OwnerEndpoints(systemd="/run/systemd", bus="/bus", sockets={"containerd": "/cri"})
NO_RUNTIME = OwnerEndpoints(systemd="/run/systemd", bus="/bus")
OVER_NRI = OwnerEndpoints(systemd="/run/systemd", bus="/bus", has_nri=True)
NO_BUS = OwnerEndpoints(systemd="/run/systemd")


def change(
    path: str,
    file: str = "memory.low",
    new: str = "4096",
    old: str = "0",
    *,
    level: Level = "container",
    container: str | None = "main",
) -> Change:
    name = container if level == "container" else None
    return Change(
        path=path,
        file=file,
        old=old,
        new=new,
        level=level,
        setting=Setting(new, RULE),
        pod="ns/pod",
        container=name,
    )


@pytest.mark.parametrize(
    ("path", "level", "owners", "through", "because"),
    [
        (SLICE, "pod", ALL, "systemd", "a systemd unit"),
        (SCOPE, "container", ALL, "runtime", "the runtime restores its stored values"),
        (INNER, "container", ALL, "runtime", "crun keeps them in a cgroup of its own"),
        (BARE, "container", ALL, "runtime", "the runtime restores its stored values"),
        (FOLDER, "pod", ALL, "direct", "nothing restores old values"),
        (SCOPE, "container", NO_RUNTIME, "systemd", "a systemd unit"),
        (BARE, "container", NO_RUNTIME, "direct", "no container runtime answers"),
        (INNER, "container", NO_RUNTIME, "direct", "no container runtime answers"),
        (BARE, "container", OVER_NRI, "nri", "its CRI socket is not reachable"),
        (INNER, "container", OVER_NRI, "nri", "crun keeps them in a cgroup of its own"),
        (SLICE, "pod", OVER_NRI, "systemd", "a systemd unit"),
        (SLICE, "pod", NO_BUS, "direct", "D-Bus does not answer: daemon-reload resets the value"),
        (SLICE, "pod", OwnerEndpoints(), "direct", "systemd does not run here"),
        (SLICE, "pod", OwnerEndpoints(is_copy=True), "direct", "without owners"),
        (SCOPE, "container", OwnerEndpoints(is_direct=True), "direct", "--direct"),
    ],
)
def test_a_value_is_written_by_whoever_would_undo_it(
    path: str, level: Level, owners: OwnerEndpoints, through: WriteVia, because: str
) -> None:
    found = route(change(path, level=level), owners, has_inner=False)
    assert found.through == through
    assert because in found.because


def test_the_scope_around_crun_s_own_cgroup_is_systemd_s() -> None:
    assert route(change(SCOPE), ALL, has_inner=True).through == "systemd"


def test_the_pause_container_is_not_known_to_the_runtime_as_a_container() -> None:
    assert route(change(SCOPE, container=None), ALL, has_inner=False).through == "systemd"
    assert route(change(BARE, container=None), ALL, has_inner=False).through == "direct"


def test_numa_nodes_of_a_unit_are_written_directly() -> None:
    found = route(change(SLICE, "cpuset.mems", level="pod"), ALL, has_inner=False)
    assert found.through == "direct"


def test_each_runtime_has_its_own_socket() -> None:
    both = OwnerEndpoints(sockets={"containerd": "/c", "cri-o": "/o"})
    assert route(change(SCOPE), both, has_inner=False).socket == "/c"
    crio = change(f"{SLICE}/crio-abc.scope")
    assert route(crio, both, has_inner=False).socket == "/o"


def test_crun_is_recognised_by_the_cgroup_it_makes(tmp_path: Path) -> None:
    router = Router(CgroupFs(str(tmp_path)), ALL)
    (tmp_path / INNER.removeprefix("/")).mkdir(parents=True)
    assert router.route(change(SCOPE)).through == "systemd"
    assert router.route(change(INNER)).through == "runtime"


def test_routes_are_counted_most_first() -> None:
    routes = [route(change(path), ALL, has_inner=False) for path in (SCOPE, BARE, SLICE)]
    assert [(found.through, count) for found, count in count_routes(routes)] == [
        ("runtime", 2),
        ("systemd", 1),
    ]


@pytest.mark.parametrize(
    ("path", "container", "is_inner"),
    [
        (SCOPE, "abc", False),
        (INNER, "abc", True),
        (BARE, "abc", False),
        ("/kubepods/pod1/crio-abc", "abc", False),
    ],
)
def test_a_container_is_named_by_its_cgroup(path: str, container: str, is_inner: bool) -> None:
    found = container_of(path)
    assert found is not None
    assert (found.container_id, found.is_inner) == (container, is_inner)


@pytest.mark.parametrize("path", ["/kubepods.slice", SLICE, "/a/x.service", "/a/b_c"])
def test_what_is_no_container_names_none(path: str) -> None:
    assert container_of(path) is None


class TestReach:
    def test_a_folder_that_is_no_kernel_s_has_no_owners(self, tmp_path: Path) -> None:
        assert discover_owners(str(tmp_path)) == OwnerEndpoints(is_copy=True)

    def test_a_socket_that_was_named_has_to_answer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memqos.host.owner_discovery._is_cgroup2", lambda _root: True)
        path = tmp_path / "cri.sock"
        with pytest.raises(Unreachable, match="no container runtime answers here"):
            discover_owners(str(tmp_path), str(path))
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            found = discover_owners(str(tmp_path), f"unix://{path}")
            assert found.sockets == {"containerd": str(path), "cri-o": str(path)}

    def test_who_writes_directly_asks_nobody(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memqos.host.owner_discovery._is_cgroup2", lambda _root: True)
        assert discover_owners(str(tmp_path), "/nowhere", direct=True) == OwnerEndpoints(
            is_direct=True
        )


class TestBatches:
    """Of a plan, by the cgroup a change is about."""

    def order(self, *changes: Change) -> list[tuple[str, list[str]]]:
        steps = [WriteStep(change, 1) for change in changes]
        return [
            (batch[0].change.path, [step.change.file for step in batch])
            for batch in batch_steps(steps, lambda change: change.path)
        ]

    def test_raise_parents_before_children_and_lower_children_before_parents(self) -> None:
        rising = [change(path) for path in ("/a/b/c", "/a", "/a/b")]
        falling = [change(path, new="0", old="4096") for path in ("/a", "/a/b/c", "/a/b")]
        assert [path for path, _ in self.order(*rising)] == ["/a", "/a/b", "/a/b/c"]
        assert [path for path, _ in self.order(*falling)] == ["/a/b/c", "/a/b", "/a"]

    def test_hold_a_container_s_values_though_one_rises_and_one_falls(self) -> None:
        both = [change("/a/b"), change("/a/b", "memory.high", "4096", "max")]
        assert self.order(*both, change("/a")) == [
            ("/a", ["memory.low"]),
            ("/a/b", ["memory.low", "memory.high"]),
        ]

    def test_are_two_only_where_the_same_happens_below(self) -> None:
        def moved(path: str) -> tuple[Change, Change]:
            return change(path, "memory.low", "0", "4096"), change(path, "memory.min")

        assert self.order(*moved("/a"), *moved("/a/b")) == [
            ("/a", ["memory.min"]),
            ("/a/b", ["memory.low", "memory.min"]),
            ("/a", ["memory.low"]),
        ]
        assert self.order(*moved("/a"), change("/a/b", "memory.low", "0", "4096")) == [
            ("/a/b", ["memory.low"]),
            ("/a", ["memory.low", "memory.min"]),
        ]
        assert self.order(*moved("/a"), change("/a/b", "memory.min")) == [
            ("/a", ["memory.low", "memory.min"]),
            ("/a/b", ["memory.min"]),
        ]
