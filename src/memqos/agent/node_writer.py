"""The outside world of an agent: what it reads, and the one hand it writes with."""

import os
import time
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, TypeVar

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.observed import Checkpoint, NodeReading, RestartMarkers
from memqos.agent.core.pod_intent import AgentSettings
from memqos.agent.core.reconciler import ReadScope
from memqos.agent.core.report import LogSeverity, Report
from memqos.agent.events import Announcer, announcer_of
from memqos.agent.node_reader import CHECKPOINT_NAME, CheckpointFile
from memqos.agent.pod_source import (
    agent_pod_source,
    list_containers,
    node_of,
    source_kubelet_endpoint,
    stop_source,
)
from memqos.agent.settings_source import KUBELET_CGROUP, SettingsSource
from memqos.converge.apply import apply
from memqos.converge.driver import Driver
from memqos.converge.journal import Journal, hierarchy_of, open_journal, read_journal
from memqos.converge.pod_sources import ContainersByRuntime, PodSource
from memqos.converge.rollback import RollbackResult, check_undo_entries, is_restorable, rollback
from memqos.converge.router import Router
from memqos.converge.steps import StaleStep, WriteOptions, WriteResult, WriteStep
from memqos.converge.undo import UndoEntries, UndoEntry
from memqos.errors import InputError, MemqosError, Unreachable
from memqos.host.cgroups import CgroupFs, read_tree
from memqos.host.durable import ensure_private_folder
from memqos.host.lock import Lock
from memqos.host.machine import SYSTEM, Roots, read_machine
from memqos.host.owner_discovery import OwnerEndpoints, discover_owners
from memqos.kernel.file_formats import meminfo_of
from memqos.kube.pod import Pod
from memqos.plan.changes import Change
from memqos.plan.names import names_of
from memqos.plan.tree import reserved_paths

_TIMEOUT: Final = 5.0
"""Seconds a write may take: one that is stopped holds all the same, and others wait."""
_INSTANCE: Final = "agent.lock"
_UNITS_LOADED: Final = "/run/systemd/systemd-units-load"
"""systemd touches it whenever it has loaded its units, since 250 (src/core/manager.c). Before, the
drift after a daemon-reload has no known cause."""
COMPACT_AFTER: Final = 5000
"""Records after which the journal is compacted: entries of removed cgroups go."""

_T = TypeVar("_T")


def new_kubelet_executor() -> Executor:
    """Who asks the kubelet: one question at a time. It has no thread until there is one."""
    return ThreadPoolExecutor(1, "memqos-kubelet")


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


def ignore_pod_changes() -> None:
    """Before there is a loop."""


class NodeWriter:
    """Reads this machine, and writes to its cgroups with a journal. No other may meanwhile."""

    def __init__(
        self,
        configuration: AgentConfiguration,
        roots: Roots = SYSTEM,
        fs: CgroupFs | None = None,
        driver: Driver | None = None,
        clock: Callable[[], float] = time.monotonic,
        new_asker: Callable[[], Executor] = new_kubelet_executor,
    ) -> None:
        self.fs = CgroupFs(configuration.cgroup_root) if fs is None else fs
        self.roots = msgspec.structs.replace(roots, cgroup=self.fs.root)
        self.configuration = configuration
        self.on_pods: Callable[[], object] = ignore_pod_changes
        """Called, from any thread, when a source that follows its pods has heard of a change."""
        self.on_answer: Callable[[], object] = ignore_pod_changes
        """Called, from any thread, when the kubelet has answered, or will not."""
        self._new_asker = new_asker
        self._asker = new_asker()
        self.source = self._make_source(configuration)
        self.announcer: Announcer | None = None
        """Tells the cluster of what is done to its pods, where there is one to be told."""
        self._given_driver = driver
        self._router: Router | None = None
        self.settings_source = SettingsSource(self.fs, self.roots, clock, self._submit_request)
        self._checkpoint = CheckpointFile()
        self._open = ExitStack()
        self._writing = ExitStack()
        self._journal: Journal | None = None
        self._reserved: frozenset[str] = frozenset()
        """Every reserved cgroup that the kubelet's configuration has named since the start."""
        self._journal_length = 0
        self.journal_fault: str | None = None
        """Why the journal lacks outcomes; rollback can do without them."""
        instance = self._lock_instance()
        self._open.callback(instance.release)
        self._instance = instance
        try:
            self.configure(configuration)
        except BaseException:
            self.close()
            raise

    def configure(self, configuration: AgentConfiguration) -> None:
        """Work under another configuration. What was written stays owed until it is given back."""
        told_before = self.configuration.pods, self.configuration.events
        if configuration.pods != self.configuration.pods:
            before, asker, self._asker = self.source, self._asker, self._new_asker()
            self.source = self._make_source(configuration)
            self._stop_announcing()
            stop_source(before)
            self.settings_source.cancel_request()
            # Not joined: its thread ends by itself, and a pass does not wait for it.
            asker.shutdown(wait=False, cancel_futures=True)
        self.configuration = configuration
        if self.announcer is None or told_before != (configuration.pods, configuration.events):
            self._stop_announcing()
            self.announcer = announcer_of(configuration, self.source)
        if configuration.mode == "enforce":
            self._open_journal()
        elif not self.undo_entries:
            self.release_journal()

    def release_journal(self) -> None:
        """While it only observes, and owes nothing, others may write."""
        if self.configuration.mode == "observe":
            self._writing.close()
            self._journal = None

    def close(self) -> None:
        """Let others write. To do it twice does no harm."""
        self._stop_announcing()
        stop_source(self.source)
        self.settings_source.cancel_request()
        self._asker.shutdown(cancel_futures=True)
        self._writing.close()
        self._open.close()
        if self._router is not None:
            self._router.close()

    def _notify_pods(self) -> None:
        self.on_pods()

    def _make_source(self, configuration: AgentConfiguration) -> PodSource:
        return agent_pod_source(
            configuration.pods, self._list_containers, self._notify_pods, self._submit_request
        )

    def _submit_request(self, question: Callable[[], _T]) -> Future[_T]:
        """Have the kubelet asked, off the pass."""
        answer = self._asker.submit(question)
        answer.add_done_callback(lambda _: self.on_answer())
        return answer

    def _stop_announcing(self) -> None:
        if self.announcer is not None:
            self.announcer.stop()
            self.announcer = None

    # Reading.

    def node_settings(self) -> AgentSettings:
        """What the node's plans rest on; the same as before where nothing has changed."""
        node, kubelet = node_of(self.source), source_kubelet_endpoint(self.source)
        ground = self.settings_source.resolve(self.configuration, node, kubelet)
        self._reserved |= reserved_paths(names_of(ground.config), ground.config)
        return ground

    def refresh(self) -> None:
        """Have the kubelet asked for its configuration, however recently it was."""
        self.settings_source.refresh()

    @property
    def is_fresh(self) -> bool:
        """Whether the last ground holds what the kubelet, or its file, said just then."""
        return self.settings_source.is_fresh

    @property
    def is_requested(self) -> bool:
        """Whether they were asked for the last ground, not only before it."""
        return self.settings_source.is_requested

    @property
    def is_request_pending(self) -> bool:
        """Whether the kubelet was asked for it, and its answer has not been taken in."""
        return self.settings_source.is_request_pending

    def is_settings_due(self) -> bool:
        """Whether to ask again what they rest on, though nothing else is due."""
        return self.settings_source.is_due()

    def take_settings_notes(self) -> list[tuple[LogSeverity, str]]:
        """What there is to be said of that, once."""
        return self.settings_source.take_notes(self.configuration.mode)

    def read_own_cgroup(self) -> str | None:
        """Where this process lives, as far as its own namespace tells."""
        try:
            with open(f"{self.roots.proc}/self/cgroup", encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            return None
        # In a cgroup namespace of its own the path is relative to its root: "0::/" says nothing
        # (cgroup_namespaces(7)).
        return next(
            (line[3:] for line in lines if line.startswith("0::/") and line != "0::/"), None
        )

    def pods(self) -> list[Pod]:
        """All pods of the node."""
        return self.source.pods()

    def read_checkpoint(self) -> Checkpoint:
        """The kubelet's memory_manager_state; the very same as before where nothing changed."""
        told = self.configuration.memory_manager_state
        return self._checkpoint.read(told or f"{self.roots.kubelet}/{CHECKPOINT_NAME}")

    def read_cgroups(self, scope: ReadScope) -> NodeReading:
        """Read what is asked for."""
        tree = read_tree(self.fs.root, scope.files, scope.subtrees)
        for path in scope.cgroups:
            identity = self.fs.identity(path)
            if identity is not None:
                files = ((file, self.fs.read(path, file)) for file in scope.files)
                tree.cgroups[path] = {name: text for name, text in files if text is not None}
                tree.identities[path] = identity
        return NodeReading(
            tree.cgroups, tree.identities, tree.unreadable, self.read_restart_markers()
        )

    def read_restart_markers(self) -> RestartMarkers:
        """Marks that systemd and the kubelet leave behind."""
        try:
            loaded = os.stat(_UNITS_LOADED).st_mtime_ns
        except OSError:
            loaded = None
        # systemd makes a new cgroup at each start of a service: another inode is another kubelet.
        return RestartMarkers(loaded, self.fs.identity(KUBELET_CGROUP))

    # Writing.

    def write(
        self, steps: Sequence[WriteStep], report: Report
    ) -> tuple[list[WriteResult], list[StaleStep]]:
        """Take the steps; those that no longer fit the tree are told apart, and hold up none."""
        assert self._journal is not None
        results: list[WriteResult] = []
        moved: list[StaleStep] = []
        rest: Iterable[WriteStep] = steps
        while True:
            applied = apply(
                rest, self.fs, TimedDriver(self._driver, report), self._journal, self._cautions()
            )
            results += applied.results
            self._note_journal_failure(self._journal, applied.journal_error, report)
            if not applied.stale:
                break
            moved += applied.stale
            stale = {(each.step.change.path, each.step.change.file) for each in moved}
            rest = [step for step in steps if (step.change.path, step.change.file) not in stale]
        if any(result.writer_blocked for result in results):
            self._instance.renew()
        self._journal_length += 2 * len(results)
        if self._journal_length > COMPACT_AFTER:
            self._compact_journal(self._journal)
        return results, moved

    def rediscover_owners(self) -> str | None:
        """Find out anew who owns the cgroups here: runtimes come and go. Why one is missed."""
        router, (found, why) = self._router, self._discover_owners()
        if router is not None and router.owners != found:
            self._router = None
            router.close()
        return why

    def _discover_owners(self) -> tuple[OwnerEndpoints, str | None]:
        told = self.configuration
        try:
            return discover_owners(self.fs.root, told.cri_socket, direct=told.direct), None
        except Unreachable as error:
            # A runtime may be restarting: go on without it, what it owns is written later.
            return msgspec.structs.replace(discover_owners(self.fs.root), sockets={}), str(error)

    @property
    def _driver(self) -> Driver:
        """The driver an agent writes through."""
        if self._given_driver is not None:
            return self._given_driver
        if self._router is None:
            page_size = os.sysconf("SC_PAGE_SIZE")
            self._router = Router(self.fs, self._discover_owners()[0], page_size, _TIMEOUT)
        return self._router

    @property
    def undo_entries(self) -> UndoEntries:
        """What was there before, of all that is to be given back some day."""
        return {} if self._journal is None else self._journal.undo_entries

    def drop_kubelet_entries(self, kept: Container[tuple[str, str]]) -> None:
        """Restore nothing any more in files, by path and name, that the kubelet keeps itself."""
        journal = self._journal
        if journal is None:
            return
        for key in [key for key in journal.undo_entries if key[:2] in kept]:
            journal.discard_entry(key)
        journal.close()

    def count_leftover_values(self) -> int:
        """Values of memqos that are in place, though nobody keeps them."""
        try:
            reading = read_journal(
                self.configuration.journal, hierarchy_of(self.fs, self._boot_id())
            )
        except MemqosError:
            return 0
        found = check_undo_entries(reading.undo_entries.values(), self.fs, self._reserved)
        return sum(each.state in ("ours", "refused") for each in found)

    def restore(self, undo_entries: Collection[UndoEntry], report: Report) -> RollbackResult:
        """Put back what was there before in some places."""
        assert self._journal is not None
        driver = TimedDriver(self._driver, report)
        done = rollback(
            self.fs,
            driver,
            self._journal,
            self._cautions(),
            entries=undo_entries,
            reserved=self._reserved,
        )
        if any(result.writer_blocked for result in done.results):
            self._instance.renew()
        self._note_journal_failure(self._journal, done.journal_error, report)
        return done

    def rewrite_journal(self) -> None:
        """Write the journal again where not all of it could be written."""
        if self.journal_fault is None or self._journal is None:
            return
        self._compact_journal(self._journal)
        if self._journal.failure is None:
            self.journal_fault = None
        self._journal.failure = None

    def _note_journal_failure(self, journal: Journal, why: str | None, report: Report) -> None:
        if why is not None:
            self.journal_fault = f"the journal cannot be written: {why}"
            report.log_error("journal", self.journal_fault)
            journal.failure = None

    def restore_all(self) -> RollbackResult:
        """Put back all that was there before."""
        return rollback(
            self.fs, self._driver, self._open_journal(), self._cautions(), reserved=self._reserved
        )

    def _open_journal(self) -> Journal:
        if self._journal is None:
            hierarchy = hierarchy_of(self.fs, self._boot_id())
            journal = self._writing.enter_context(
                open_journal(self.configuration.journal, hierarchy)
            )
            self._compact_journal(journal)
            self._journal = journal
        return self._journal

    def _list_containers(self) -> ContainersByRuntime:
        return list_containers(self.fs.root, self.configuration.cri_socket)

    def _cautions(self) -> WriteOptions:
        try:
            with open(f"{self.roots.proc}/meminfo", encoding="ascii") as file:
                swap_free = meminfo_of(file.read()).get("SwapFree", 0)
        except OSError:
            swap_free = 0
        return WriteOptions(os.sysconf("SC_PAGE_SIZE"), swap_free)

    def _compact_journal(self, journal: Journal) -> None:
        """Keep the journal as short as the node allows, however long the agent runs."""
        self._journal_length = 0
        if not journal.undo_entries:
            return
        kept = set()
        for (path, cgroup), holding in journal.owner_states.items():
            if self.fs.identity(path) is None:
                if not is_restorable(path, self._reserved):
                    kept.add((path, cgroup))
                    continue
                try:
                    self._driver.restore_owner(path, holding, list(holding.values))
                except (MemqosError, OSError):
                    kept.add((path, cgroup))
        journal.keep_only(
            [
                debt
                for debt in journal.undo_entries.values()
                if debt.cgroup_key in kept or self.fs.identity(debt.path) == debt.cgroup
            ]
        )

    def _lock_instance(self) -> Lock:
        folder = self.configuration.journal
        try:
            ensure_private_folder(folder)
            return Lock(os.path.join(folder, _INSTANCE))
        except OSError as error:
            raise InputError(
                f"no lock can be taken here: {error.strerror}",
                file=folder,
                hint="run as root, or name another folder with --journal",
            ) from None

    def _boot_id(self) -> str:
        boot = read_machine(self.roots).boot_id
        if boot is None:
            raise Unreachable(
                "the kernel does not say which boot this is", hint="is /proc mounted?"
            )
        return boot
