"""A node whose cgroups have owners: systemd its slices and scopes, a runtime its containers."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.eventually import PATIENCE
from tests.fakes.cgroups import PAGE, FakeKernel
from tests.fakes.node import RULE, Node
from tests.fakes.runtime import FakeRuntime
from tests.fakes.systemd import FakeSystemd

from memqos.converge.driver import Driver
from memqos.converge.records import OwnerKind
from memqos.converge.router import Router, WriteVia
from memqos.converge.steps import WriteStep, steps_of
from memqos.host.owner_discovery import OwnerEndpoints
from memqos.plan.changes import Change
from memqos.plan.names import container_of
from memqos.plan.setting import Setting
from memqos.plan.tree import Level

KUBEPODS: Final = "/kubepods.slice"
BURSTABLE: Final = f"{KUBEPODS}/kubepods-burstable.slice"
PODS: Final = tuple(f"{BURSTABLE}/kubepods-burstable-pod{uid}.slice" for uid in "ab")
CONTAINERS: Final = {
    f"{uid}{name}": f"{pod}/cri-containerd-{uid}{name}.scope"
    for uid, pod in zip("ab", PODS, strict=True)
    for name in "12"
}
SLICES: Final[dict[str, Level]] = {
    KUBEPODS: "kubepods",
    BURSTABLE: "qos",
    **dict.fromkeys(PODS, "pod"),
}


class _Impatient(Router):
    """Gives up on one of the owners soon: what the others take says nothing."""

    impatient_with: OwnerKind | None = None

    def _driver(self, through: WriteVia, socket: str | None) -> Driver:
        usual = self.timeout
        if through == self.impatient_with:
            self.timeout = 0.2
        try:
            return super()._driver(through, socket)
        finally:
            self.timeout = usual


class OwnedNode(Node):
    """The peers are made with it; they serve while the test lets them."""

    def __init__(self, folder: Path) -> None:
        self.kernel = FakeKernel(folder)
        self.journal_folder = str(folder / "run")
        self.boot = "this-boot"
        self.timeout = PATIENCE
        self.impatient_with: OwnerKind | None = None
        """Whom a moment has to be enough for: one that hangs."""
        self.systemd = FakeSystemd(folder, self.kernel)
        self.runtime = FakeRuntime(folder, self.kernel)
        self.is_direct = False
        if not any(self.kernel.folder.iterdir()):
            for path in (*SLICES, *CONTAINERS.values()):
                self.kernel.make(path, {"memory.oom.group": "0", "cpuset.mems.effective": "0-7"})
                self.systemd.start_unit(path)
            for container, path in CONTAINERS.items():
                self.runtime.start(container, path, {"memory.low": "0", "memory.oom.group": "1"})

    @property
    def owner_endpoints(self) -> OwnerEndpoints:
        return OwnerEndpoints(
            is_direct=self.is_direct,
            systemd=str(self.systemd.run),
            bus=str(self.systemd.socket),
            sockets={"containerd": str(self.runtime.socket)},
        )

    @contextlib.contextmanager
    def driver(self) -> Iterator[Driver]:
        router = _Impatient(self.kernel, self.owner_endpoints, PAGE, self.timeout)
        router.impatient_with = self.impatient_with
        try:
            yield router
        finally:
            router.close()

    @contextlib.contextmanager
    def owners(self) -> Iterator[None]:
        """While systemd and the runtime are up."""
        with self.systemd.serving(), self.runtime.serving():
            yield

    def steps(self, wanted: Mapping[tuple[str, str], str]) -> tuple[WriteStep, ...]:
        return steps_of(
            [self.change(path, file, new) for (path, file), new in wanted.items()],
            {path: self.kernel.identity(path) or 0 for path, _ in wanted},
        )

    def change(self, path: str, file: str, new: str) -> Change:
        old = self.kernel.read(path, file)
        assert old is not None
        level = SLICES.get(path, "container")
        container = container_of(path) if level == "container" else None
        name = None if container is None else container.container_id
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


def a_plan(size: int = 1 << 20) -> dict[tuple[str, str], str]:
    """As Kubernetes has it: slices protect, containers protect and throttle."""
    wanted: dict[tuple[str, str], str] = {}
    for path in SLICES:
        wanted[path, "memory.low"] = str(8 * size)
    wanted[KUBEPODS, "memory.min"] = str(8 * size)
    for path in CONTAINERS.values():
        wanted[path, "memory.low"] = str(4 * size)
        wanted[path, "memory.high"] = str(100 * size)
    return wanted
