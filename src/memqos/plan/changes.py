"""What would have to change for a node to be as planned, in the order that is safe.

Values are compared as the kernel stores them: rounded down to pages. What is not planned for a
file that Kubernetes keeps is expected to have the kernel's default, so a stale value shows up.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from memqos.plan.names import CgroupNames, inner
from memqos.plan.setting import MAX, NEEDS_NODE, FileValue, Rule, Setting
from memqos.plan.tree import Cgroup, Level, Tree

Files = Mapping[str, str]
"""File name → content, as read."""
ChangeKind = Literal["+", "~", "-"]
"""Default → set, changed, set → default."""

MANAGED: Final = ("memory.min", "memory.low", "memory.high", "cpuset.mems")
"""What memqos writes, cpuset.mems only where configured; other files are compared and shown."""
DEFAULTS: Final[dict[str, str]] = {
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": MAX,
    "memory.max": MAX,
    "memory.swap.max": MAX,
    "memory.oom.group": "0",
    "cpu.max": f"{MAX} 100000",
    "cpuset.mems": "",
}
"""What the kernel gives a new cgroup: cgroup-v2.rst; 100000 µs is the default period of cpu.max."""
_ROUNDED: Final = frozenset(
    {"memory.min", "memory.low", "memory.high", "memory.max", "memory.swap.max"}
)
_ALWAYS_COMPARED: Final = ("memory.min", "memory.low", "memory.high")
_WITHIN: Final = ("memory.", "cpuset.")
"""What crun writes to the cgroup within the scope, and not to the scope itself."""
_LARGEST: Final = 1 << 63  # above any amount that the kernel shows

NOT_PLANNED: Final = Rule(
    "default/not-planned", "Kubernetes sets nothing here, so the kernel's default applies", "kernel"
)
SANDBOX_RULE: Final = Rule(
    "default/sandbox",
    "the pause container, or one that is in no pod's status: nothing is set on it",
    "kubelet",
)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One file whose value is not as planned."""

    path: str
    file: str
    old: str
    new: str
    """As the kernel will store it."""
    level: Level
    setting: Setting
    pod: str | None = None
    container: str | None = None

    @property
    def kind(self) -> ChangeKind:
        """Whether a value is set, changed or reset to the default."""
        default = DEFAULTS.get(self.file)
        if self.old == default:
            return "+"
        return "-" if self.new == default else "~"

    @property
    def raises(self) -> bool:
        """Whether the new value is larger."""
        return magnitude(self.new) > magnitude(self.old)


class Comparison(msgspec.Struct, frozen=True):
    """How a node differs from its plan."""

    changes: tuple[Change, ...]
    """What memqos would write, in order; empty means converged."""
    unmanaged: tuple[Change, ...]
    """Differences in files that the kubelet or the runtime writes."""
    missing: tuple[Cgroup, ...]
    """Planned cgroups that do not exist: containers that have not started or have ended."""
    orphans: tuple[str, ...] = ()
    """Pod cgroups that belong to none of the planned pods."""
    withheld: tuple[Change, ...] = ()
    """What memqos would write on another kernel, and leaves as it is here."""


def compare(
    tree: Tree, observed: Mapping[str, Files], names: CgroupNames, page_size: int
) -> Comparison:
    """Compare what is observed, path → file → content, with the plan."""
    managed: list[Change] = []
    unmanaged: list[Change] = []
    missing: list[Cgroup] = []
    planned = [*tree.cgroups.values(), *_containers_without_status(tree, observed, names)]
    for cgroup in (part for whole in planned for part in parts(whole, observed, names)):
        files = observed.get(cgroup.path)
        if files is None:
            missing.append(cgroup)
            continue
        for change in _differing(cgroup, files, page_size):
            (managed if change.file in MANAGED else unmanaged).append(change)
    orphans = tuple(_orphans(tree, observed, names))
    return Comparison(tuple(order(managed)), tuple(unmanaged), tuple(missing), orphans)


def withhold_high(comparison: Comparison) -> Comparison:
    """The same without writes of memory.high: it is neither set nor reset."""
    return msgspec.structs.replace(
        comparison,
        changes=tuple(each for each in comparison.changes if each.file != "memory.high"),
        withheld=tuple(each for each in comparison.changes if each.file == "memory.high"),
    )


def order(changes: list[Change]) -> list[Change]:
    """Raise parents before their children, then lower children before their parents.

    A child is protected only as far as its parent is, and a limit may not fall below what the
    cgroups below it use. memory.high is a limit too: it is raised before protection is lowered.
    """
    # Protection is effective only within that of all ancestors, and limits bound the whole subtree
    # (cgroup-v2.rst, Resource Distribution Models).
    raising = sorted((c for c in changes if c.raises), key=_depth)
    lowering = sorted((c for c in changes if not c.raises), key=_depth, reverse=True)
    return raising + lowering


def _depth(change: Change) -> int:
    return change.path.count("/")


def as_stored(file: str, value: FileValue, page_size: int) -> str:
    """A planned value as the kernel will show it."""
    # page_counter_memparse() (mm/page_counter.c) divides by the page size; from PAGE_COUNTER_MAX,
    # LONG_MAX / page size, on the file shows "max".
    if value is None:
        return DEFAULTS.get(file, "")
    if isinstance(value, int) and file in _ROUNDED:
        return MAX if value >= _LARGEST - page_size else str(value // page_size * page_size)
    return str(value)


def magnitude(content: str) -> int:
    """The size of a value, for ordering; `max` is larger than any."""
    if content == MAX:
        return _LARGEST
    return int(content) if content.isdigit() else 0


def _differing(cgroup: Cgroup, files: Files, page_size: int) -> Iterator[Change]:
    settings = {
        **{file: Setting(None, NOT_PLANNED) for file in _ALWAYS_COMPARED},
        **cgroup.settings,
    }
    for file, setting in settings.items():
        if file not in files or setting.value == NEEDS_NODE:
            continue
        # Containers have "max" where the runtime leaves hugetlb alone (containerd's default,
        # disable_hugetlb_controller): the limit of 0 on their pod applies all the same.
        if file.startswith("hugetlb.") and setting.value == 0 and cgroup.level == "container":
            continue
        if setting.value is None and file not in DEFAULTS:
            continue
        old, new = files[file].strip(), as_stored(file, setting.value, page_size)
        if old != new:
            yield Change(
                path=cgroup.path,
                file=file,
                old=old,
                new=new,
                level=cgroup.level,
                setting=setting,
                pod=cgroup.pod,
                container=cgroup.container,
            )


def _orphans(tree: Tree, observed: Mapping[str, Files], names: CgroupNames) -> Iterator[str]:
    for path in observed:
        place = None if path in tree.cgroups else names.recognise(path)
        if place is not None and place.kind == "pod":
            yield path


def _containers_without_status(
    tree: Tree, observed: Mapping[str, Files], names: CgroupNames
) -> Iterator[Cgroup]:
    """Containers inside planned pods that no status names."""
    for path in observed:
        parent = tree.cgroups.get(path.rpartition("/")[0])
        if path in tree.cgroups or parent is None or parent.level != "pod":
            continue
        if names.recognise(path) is not None:
            nothing = {file: Setting(None, SANDBOX_RULE) for file in _ALWAYS_COMPARED}
            yield Cgroup(path, "container", nothing, parent.pod)


def parts(cgroup: Cgroup, observed: Mapping[str, Files], names: CgroupNames) -> Iterator[Cgroup]:
    """A container that crun runs in a scope is two cgroups.

    crun writes all values to the one within. Protection ends at the scope above unless it has as
    much, so memqos plans both.
    """
    within = inner(cgroup.path)
    if cgroup.level != "container" or names.driver != "systemd" or within not in observed:
        yield cgroup
        return
    settings = cgroup.settings
    yield msgspec.structs.replace(
        cgroup, settings={file: settings[file] for file in settings if file in _ALWAYS_COMPARED}
    )
    yield msgspec.structs.replace(
        cgroup,
        path=within,
        settings={file: settings[file] for file in settings if file.startswith(_WITHIN)},
    )
