"""What an agent writes to its node: cgroup values, with a journal of those that were there before.

No other memqos may write meanwhile: the journal and this agent each have a lock.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.creation import ContainerValues
from memqos.agent.core.pod_intent import MEMORY_FILES, AgentSettings
from memqos.agent.core.report import Report
from memqos.converge.apply import apply
from memqos.converge.cgroup_writer import CgroupWriter
from memqos.converge.driver import Driver
from memqos.converge.journal import Journal, open_journal, read_journal
from memqos.converge.records import NEW_CGROUP, IntentRecord, OwnerRecord, OwnerState
from memqos.converge.rollback import RollbackResult, check_undo_entries, is_restorable, rollback
from memqos.converge.steps import StaleStep, WriteResult, WriteStep
from memqos.converge.undo import UndoEntries, UndoEntry
from memqos.errors import InputError, JournalError, MemqosError, Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.host.durable import ensure_private_folder
from memqos.host.lock import Lock
from memqos.host.machine import SYSTEM, Roots
from memqos.host.owner_discovery import OwnerEndpoints, discover_owners
from memqos.plan.changes import Change
from memqos.plan.cpuset import MEMS
from memqos.plan.names import container_of, inner, names_of
from memqos.plan.tree import reserved_paths

if TYPE_CHECKING:
    from memqos.converge.cri_driver import RuntimeClient

_TIMEOUT: Final = 5.0
"""Seconds a write may take: one that is stopped may still take effect, and others wait."""
_INSTANCE: Final = "agent.lock"
COMPACT_AFTER: Final = 5000
"""Records after which the journal is compacted: entries of removed cgroups go."""


class TimedDriver:
    """A driver whose writes are timed."""

    def __init__(self, driver: Driver, report: Report) -> None:
        self._driver = driver
        self._report = report
        self.batch_key = driver.batch_key
        self.read_owner_state = driver.read_owner_state
        self.restore_owner = driver.restore_owner
        self.read = driver.read

    def write(self, changes: Sequence[Change]) -> bool:
        start = time.perf_counter()
        try:
            return self._driver.write(changes)
        finally:
            self._report.write_seconds.observe(time.perf_counter() - start)


class NodeWriter:
    """Writes to this machine's cgroups, and restores what was there before."""

    def __init__(
        self,
        configuration: AgentConfiguration,
        fs: CgroupFs,
        *,
        roots: Roots = SYSTEM,
        driver: Driver | None = None,
    ) -> None:
        self.fs = fs
        self.configuration = configuration
        self.journal_fault: str | None = None
        """Why the journal lacks outcomes; rollback can do without them."""
        self._given_driver = driver
        self._has_nri: Callable[[], bool] = lambda: False
        self._is_starting: Callable[[str], bool] = lambda _path: False
        self._reserved: frozenset[str] = frozenset()
        """Every reserved cgroup that the kubelet's configuration has named since the start."""
        self._open = ExitStack()
        self._journal_lock = ExitStack()
        self._journal: Journal | None = None
        self._instance = _lock_instance(configuration.journal)
        self._open.callback(self._instance.release)
        self._writer = CgroupWriter(
            fs,
            self.discover_owners()[0],
            roots=msgspec.structs.replace(roots, cgroup=fs.root),
            timeout=_TIMEOUT,
        )
        try:
            self.configure(configuration)
        except BaseException:
            self.close()
            raise

    def configure(self, configuration: AgentConfiguration) -> None:
        """Write as another configuration says. What was written before is still to be restored."""
        self.configuration = configuration
        if configuration.mode == "enforce":
            self.open_journal()
        elif not self.undo_entries:
            self.release_journal()

    def close(self) -> None:
        """Let others write. To do it twice does no harm."""
        self._journal_lock.close()
        self._open.close()
        self._writer.close()

    # Values.

    def write(
        self, steps: Sequence[WriteStep], report: Report
    ) -> tuple[list[WriteResult], list[StaleStep]]:
        """Take the steps; those that no longer fit the tree are returned, and block no others."""
        journal = self.open_journal()
        results: list[WriteResult] = []
        stale: list[StaleStep] = []
        rest: Iterable[WriteStep] = steps
        while True:
            driver = TimedDriver(self._driver, report)
            applied = apply(rest, self.fs, driver, journal, self._writer.options())
            results += applied.results
            self.note_journal_failure(applied.journal_error, report)
            if not applied.stale:
                break
            stale += applied.stale
            skipped = {(each.step.change.path, each.step.change.file) for each in stale}
            rest = [step for step in steps if (step.change.path, step.change.file) not in skipped]
        self._renew_instance(results)
        return results, stale

    def restore(self, undo_entries: Collection[UndoEntry], report: Report) -> RollbackResult:
        """Restore what was there before in some places."""
        done = rollback(
            self.fs,
            TimedDriver(self._driver, report),
            self.open_journal(),
            self._writer.options(),
            entries=undo_entries,
            reserved=self._reserved,
        )
        self._renew_instance(done.results)
        self.note_journal_failure(done.journal_error, report)
        return done

    def restore_all(self) -> RollbackResult:
        """Restore all that was there before, through those who own the cgroups now.

        A runtime that has connected since the last full pass would keep values of memqos that
        were restored in the files alone.
        """
        self.rediscover_owners()
        return rollback(
            self.fs,
            self._driver,
            self.open_journal(),
            self._writer.options(),
            reserved=self._reserved,
        )

    def allow_reserved(self, node_settings: AgentSettings) -> None:
        """The reserved cgroups of these settings may be restored, too."""
        self._reserved |= reserved_paths(names_of(node_settings.config), node_settings.config)

    # What the runtime writes, recorded by the thread of the NRI plugin.

    def record_creation(self, container: ContainerValues) -> None:
        """Have in the journal what the cgroup of a container will have that is about to be made."""
        paths = [container.path]
        if container.path.endswith(".scope"):
            paths.append(inner(container.path))
        self._record_for_runtime(
            container,
            [
                (path, NEW_CGROUP, file, container.prior(file))
                for path in paths
                for file in container.values
            ],
        )

    def record_resize(self, container: ContainerValues) -> None:
        """Have in the journal what is there now, and what the runtime is about to write."""
        self._record_for_runtime(
            container,
            [
                (path, identity, file, value)
                for path in (container.path, inner(container.path))
                if (identity := self.fs.identity(path)) is not None
                for file in container.values
                if (value := self.fs.read(path, file)) not in (None, container.values[file])
            ],
        )

    def forget_creations(self, is_expected: Callable[[str], bool]) -> None:
        """These cgroups, by path, are never made, but for those that are still expected."""
        journal = self._journal
        if journal is not None:
            journal.discard_new(is_expected)

    def _record_for_runtime(
        self, container: ContainerValues, files: Sequence[tuple[str, int, str, str]]
    ) -> None:
        if not files:
            return
        journal, found = self._journal, container_of(container.path)
        if journal is None or found is None:
            raise JournalError(f"{container.path}: there is no journal to restore it from")
        stored = {file: container.kubelet.get(file) for file in MEMORY_FILES}
        owner_state = OwnerState("runtime", found.container_id, {**stored, MEMS: None})
        places = {(path, identity) for path, identity, _, _ in files}
        journal.record_writes(
            [
                *[
                    OwnerRecord(path, identity, owner_state)
                    for path, identity in places
                    if (path, identity) not in journal.owner_states
                ],
                *[
                    IntentRecord(
                        path=path,
                        file=file,
                        cgroup=identity,
                        old=prior,
                        new=container.values[file],
                        level="container",
                        pod=container.pod,
                        container=container.container,
                    )
                    for path, identity, file, prior in files
                ],
            ]
        )

    def bind_creations(self) -> None:
        """What was recorded of cgroups that are there by now is about these."""
        if self._journal is not None:
            self._journal.bind_new(self.fs.identity)

    # Owners.

    def set_nri(
        self,
        runtime: "RuntimeClient",
        is_connected: Callable[[], bool],
        is_starting: Callable[[str], bool],
    ) -> None:
        """From now on this process is a plugin of a runtime, which comes and goes.

        `is_starting` says, by its path, whether a container got values and has not started yet.
        """
        self._writer.nri, self._has_nri = runtime, is_connected
        self._is_starting = is_starting
        if self._journal is not None:
            self._journal.is_starting = is_starting

    def rediscover_owners(self) -> str | None:
        """Find out who owns the cgroups now: runtimes come and go. Why one is missing."""
        owners, why = self.discover_owners()
        has_nri = self._has_nri() and not owners.is_copy and not owners.is_direct
        self._writer.set_owners(msgspec.structs.replace(owners, has_nri=has_nri))
        return why

    def discover_owners(self) -> tuple[OwnerEndpoints, str | None]:
        """Who owns the cgroups, and why one is missing."""
        configured = self.configuration
        try:
            owners = discover_owners(self.fs.root, configured.cri_socket, direct=configured.direct)
        except Unreachable as error:
            # A runtime may be restarting: go on without it, what it owns is written later.
            return msgspec.structs.replace(discover_owners(self.fs.root), sockets={}), str(error)
        return owners, None

    @property
    def _driver(self) -> Driver:
        return self._writer.router if self._given_driver is None else self._given_driver

    # The journal.

    @property
    def undo_entries(self) -> UndoEntries:
        """What was there before, of all that is to be restored some day."""
        return {} if self._journal is None else self._journal.undo_entries

    def open_journal(self) -> Journal:
        """The journal, locked from now on."""
        if self._journal is None:
            self._journal = self._journal_lock.enter_context(
                open_journal(self.configuration.journal, self._writer.hierarchy())
            )
            self._journal.is_starting = self._is_starting
            if self._journal.undo_entries:
                self._compact(self._journal)
        return self._journal

    def release_journal(self) -> None:
        """In mode observe, with nothing left to restore, others may write."""
        if self.configuration.mode == "observe":
            self._journal_lock.close()
            self._journal = None

    def compact_journal(self) -> None:
        """Keep the journal as short as the node allows, however long the agent runs."""
        if self._journal is not None and self._journal.appended > COMPACT_AFTER:
            self._compact(self._journal)

    def rewrite_journal(self) -> None:
        """Write the journal again where not all of it could be written."""
        if self.journal_fault is None or self._journal is None:
            return
        self._compact(self._journal)
        if self._journal.failure is None:
            self.journal_fault = None
        self._journal.failure = None

    def settle_kubelet_entries(self, values: Mapping[tuple[str, str], str | None]) -> None:
        """The kubelet has confirmed the files above pods that it keeps, by path and name.

        A value is settled once it is the kubelet's, or not memqos's any more. Until the kubelet
        has written, another one may still be there.
        """
        journal = self._journal
        if journal is None:
            return

        def is_settled(entry: UndoEntry) -> bool:
            found = self.fs.read(entry.path, entry.file)
            return found not in entry.ours or found == values[entry.key[:2]]

        journal.settle_kubelet_entries(values, is_settled)
        journal.close()

    def count_leftover_values(self) -> int:
        """Values of memqos that are in place, though the agent no longer maintains them."""
        try:
            reading = read_journal(self.configuration.journal, self._writer.hierarchy())
        except MemqosError:
            return 0
        found = check_undo_entries(reading.undo_entries.values(), self.fs, self._reserved)
        return sum(each.state in ("ours", "unconfirmed", "refused") for each in found)

    def note_journal_failure(self, why: str | None, report: Report) -> None:
        """Report that outcomes are missing in the journal, if they are."""
        if why is not None and self._journal is not None:
            self.journal_fault = f"the journal cannot be written: {why}"
            report.log_error("journal", self.journal_fault)
            self._journal.failure = None

    def _compact(self, journal: Journal) -> None:
        unsettled = set()
        for (path, cgroup), owner_state in journal.owner_states.items():
            if self.fs.identity(path) is None and cgroup != NEW_CGROUP:
                if not is_restorable(path, self._reserved):
                    unsettled.add((path, cgroup))
                    continue
                try:
                    self._driver.restore_owner(path, owner_state, list(owner_state.values))
                except (MemqosError, OSError):
                    unsettled.add((path, cgroup))
        journal.forget(
            entry
            for entry in journal.undo_entries.values()
            if entry.cgroup_key not in unsettled and self.fs.identity(entry.path) != entry.cgroup
        )

    def _renew_instance(self, results: Sequence[WriteResult]) -> None:
        """A write that never returned holds the lock, too: take it again, alone."""
        if any(result.writer_blocked for result in results):
            self._instance.renew()


def _lock_instance(folder: str) -> Lock:
    try:
        ensure_private_folder(folder)
        return Lock(os.path.join(folder, _INSTANCE))
    except OSError as error:
        raise InputError(
            f"no lock can be taken here: {error.strerror}",
            file=folder,
            hint="run as root, or name another folder with --journal",
        ) from None
