"""The outside world of an agent: what it reads, and the one hand it writes with."""

import os
import time
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, TypeVar

import msgspec

from memqos.agent.checkpoint import STATE_FILE, CheckpointFile
from memqos.agent.cluster_events import Announcer, announcer_of
from memqos.agent.configuration import Configuration
from memqos.agent.core.drift import Signs
from memqos.agent.core.observed import Checkpoint, Seen
from memqos.agent.core.reconciler import Scope
from memqos.agent.pod_source import kubelet_asked, listed_below, node_of, source_of, stop
from memqos.agent.settings_source import KUBELET_CGROUP, Grounds
from memqos.agent.tally import Severity, Tally
from memqos.converge.apply import apply
from memqos.converge.driver import Driver
from memqos.converge.journal import Journal, hierarchy_of, read, writing
from memqos.converge.rollback import RolledBack, is_restorable, rollback, survey
from memqos.converge.routing import Router
from memqos.converge.runtime_labels import Containers
from memqos.converge.settings import Ground
from memqos.converge.sources import PodSource
from memqos.converge.steps import Moved, Step
from memqos.converge.undo import Debts, Owed
from memqos.converge.writing import Cautions, Result
from memqos.errors import InputError, MemqosError, Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.host.durable import private_folder
from memqos.host.lock import Lock
from memqos.host.machine import SYSTEM, Roots, read_machine
from memqos.host.owner_discovery import Reach, reach
from memqos.host.tree import read_tree
from memqos.kernel.meminfo import meminfo_of
from memqos.kube.pod import Pod
from memqos.plan.changes import Change
from memqos.plan.tree import reserved_paths

_TIMEOUT: Final = 5.0
"""Seconds a write may take: one that is stopped holds all the same, and others wait."""
_INSTANCE: Final = "agent.lock"
_UNITS_LOADED: Final = "/run/systemd/systemd-units-load"
COMPACT_AFTER: Final = 5000
"""Records after which the journal is compacted: entries of removed cgroups go."""

T = TypeVar("T")


def one_thread() -> Executor:
    """Who asks the kubelet: one question at a time. It has no thread until there is one."""
    return ThreadPoolExecutor(1, "memqos-kubelet")


class Timed:
    """A driver whose writes are timed."""

    def __init__(self, driver: Driver, tally: Tally) -> None:
        self._driver = driver
        self._tally = tally
        self.batch = driver.batch
        self.holding = driver.holding
        self.release = driver.release
        self.read = driver.read

    def write(self, changes: Sequence[Change]) -> bool:
        start = time.perf_counter()
        try:
            return self._driver.write(changes)
        finally:
            self._tally.write_seconds.observe(time.perf_counter() - start)


def nobody_listens() -> None:
    """Before there is a loop."""


class Hand:
    """Reads this machine, and writes to its cgroups with a journal. No other may meanwhile."""

    def __init__(
        self,
        configuration: Configuration,
        roots: Roots = SYSTEM,
        fs: CgroupFs | None = None,
        driver: Driver | None = None,
        clock: Callable[[], float] = time.monotonic,
        new_asker: Callable[[], Executor] = one_thread,
    ) -> None:
        self.fs = CgroupFs(configuration.cgroup_root) if fs is None else fs
        self.roots = msgspec.structs.replace(roots, cgroup=self.fs.root)
        self.configuration = configuration
        self.on_pods: Callable[[], object] = nobody_listens
        """Called, from any thread, when a source that follows its pods has heard of a change."""
        self.on_answer: Callable[[], object] = nobody_listens
        """Called, from any thread, when the kubelet has answered, or will not."""
        self._new_asker = new_asker
        self._asker = new_asker()
        self.source = self._source_of(configuration)
        self.announcer: Announcer | None = None
        """Tells the cluster of what is done to its pods, where there is one to be told."""
        self._given = driver
        self._router: Router | None = None
        self.grounds = Grounds(self.fs, self.roots, clock, self._ask)
        self._checkpoint = CheckpointFile()
        self._open = ExitStack()
        self._writing = ExitStack()
        self._journal: Journal | None = None
        self._reserved: frozenset[str] = frozenset()
        """Every reserved cgroup that the kubelet's configuration has named since the start."""
        self._recorded = 0
        self.unrecorded: str | None = None
        """Why the journal lacks outcomes; rollback can do without them."""
        instance = self._alone()
        self._open.callback(instance.release)
        self._instance = instance
        try:
            self.configure(configuration)
        except BaseException:
            self.close()
            raise

    def configure(self, configuration: Configuration) -> None:
        """Work under another configuration. What was written stays owed until it is given back."""
        told_before = self.configuration.pods, self.configuration.events
        if configuration.pods != self.configuration.pods:
            before, asker, self._asker = self.source, self._asker, self._new_asker()
            self.source = self._source_of(configuration)
            self._stop_telling()
            stop(before)
            self.grounds.drop_question()
            # Its thread ends by itself: a pass waits for nobody.
            asker.shutdown(wait=False, cancel_futures=True)
        self.configuration = configuration
        if self.announcer is None or told_before != (configuration.pods, configuration.events):
            self._stop_telling()
            self.announcer = announcer_of(configuration, self.source)
        if configuration.mode == "enforce":
            self._opened()
        elif not self.debts:
            self.let_go()

    def let_go(self) -> None:
        """While it only observes, and owes nothing, others may write."""
        if self.configuration.mode == "observe":
            self._writing.close()
            self._journal = None

    def close(self) -> None:
        """Let others write. To do it twice does no harm."""
        self._stop_telling()
        stop(self.source)
        self.grounds.drop_question()
        self._asker.shutdown(cancel_futures=True)
        self._writing.close()
        self._open.close()
        if self._router is not None:
            self._router.close()

    def _heard(self) -> None:
        self.on_pods()

    def _source_of(self, configuration: Configuration) -> PodSource:
        return source_of(configuration.pods, self._listed, self._heard, self._ask)

    def _ask(self, question: Callable[[], T]) -> Future[T]:
        """Have the kubelet asked, off the pass."""
        answer = self._asker.submit(question)
        answer.add_done_callback(lambda _: self.on_answer())
        return answer

    def _stop_telling(self) -> None:
        if self.announcer is not None:
            self.announcer.stop()
            self.announcer = None

    # Reading.

    def ground(self) -> Ground:
        """What the node's plans rest on; the same as before where nothing has changed."""
        node, kubelet = node_of(self.source), kubelet_asked(self.source)
        ground = self.grounds.under(self.configuration, node, kubelet)
        self._reserved |= reserved_paths(ground.names, ground.config)
        return ground

    def refresh(self) -> None:
        """Have the kubelet asked for its configuration, however recently it was."""
        self.grounds.refresh()

    @property
    def is_fresh(self) -> bool:
        """Whether the last ground holds what the kubelet, or its file, said just then."""
        return self.grounds.is_fresh

    @property
    def is_asked(self) -> bool:
        """Whether they were asked for the last ground, not only before it."""
        return self.grounds.is_asked

    @property
    def is_asking(self) -> bool:
        """Whether the kubelet was asked for it, and its answer has not been taken in."""
        return self.grounds.is_asking

    def is_ground_due(self) -> bool:
        """Whether to ask again what they rest on, though nothing else is due."""
        return self.grounds.is_due()

    def taken_notes(self) -> list[tuple[Severity, str]]:
        """What there is to be said of that, once."""
        return self.grounds.take_notes(self.configuration.mode)

    def own_cgroup(self) -> str | None:
        """Where this process lives, as far as its own namespace tells."""
        try:
            with open(f"{self.roots.proc}/self/cgroup", encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            return None
        return next(
            (line[3:] for line in lines if line.startswith("0::/") and line != "0::/"), None
        )

    def pods(self) -> list[Pod]:
        """All pods of the node."""
        return self.source.pods()

    def checkpoint(self) -> Checkpoint:
        """The kubelet's memory_manager_state; the very same as before where nothing changed."""
        told = self.configuration.memory_manager_state
        return self._checkpoint.read(told or f"{self.roots.kubelet}/{STATE_FILE}")

    def look(self, scope: Scope) -> Seen:
        """Read what is asked for."""
        tree = read_tree(self.fs.root, scope.files, scope.below)
        for path in scope.alone:
            identity = self.fs.identity(path)
            if identity is not None:
                files = ((file, self.fs.read(path, file)) for file in scope.files)
                tree.cgroups[path] = {name: text for name, text in files if text is not None}
                tree.identities[path] = identity
        return Seen(tree.cgroups, tree.identities, tree.refused, self.signs())

    def signs(self) -> Signs:
        """Marks that systemd and the kubelet leave behind."""
        try:
            loaded = os.stat(_UNITS_LOADED).st_mtime_ns
        except OSError:
            loaded = None
        return Signs(loaded, self.fs.identity(KUBELET_CGROUP))

    # Writing.

    def write(self, steps: Sequence[Step], tally: Tally) -> tuple[list[Result], list[Moved]]:
        """Take the steps; those that no longer fit the tree are told apart, and hold up none."""
        assert self._journal is not None
        results: list[Result] = []
        moved: list[Moved] = []
        rest: Iterable[Step] = steps
        while True:
            applied = apply(
                rest, self.fs, Timed(self._driver, tally), self._journal, self._cautions()
            )
            results += applied.results
            self._take_failure(self._journal, applied.unrecorded, tally)
            if not applied.moved:
                break
            moved += applied.moved
            stale = {(each.step.change.path, each.step.change.file) for each in moved}
            rest = [step for step in steps if (step.change.path, step.change.file) not in stale]
        if any(result.lingers for result in results):
            self._instance.renew()
        self._recorded += 2 * len(results)
        if self._recorded > COMPACT_AFTER:
            self._forget_gone(self._journal)
        return results, moved

    def seek_owners(self) -> str | None:
        """Find out anew who owns the cgroups here: runtimes come and go. Why one is missed."""
        router, (found, why) = self._router, self._reach()
        if router is not None and router.reach != found:
            self._router = None
            router.close()
        return why

    def _reach(self) -> tuple[Reach, str | None]:
        told = self.configuration
        try:
            return reach(self.fs.root, told.cri_socket, direct=told.direct), None
        except Unreachable as error:
            # Runtimes are restarted, and a node has to be kept meanwhile.
            return msgspec.structs.replace(reach(self.fs.root), sockets={}), str(error)

    @property
    def _driver(self) -> Driver:
        """The driver an agent writes through."""
        if self._given is not None:
            return self._given
        if self._router is None:
            page_size = os.sysconf("SC_PAGE_SIZE")
            self._router = Router(self.fs, self._reach()[0], page_size, _TIMEOUT)
        return self._router

    @property
    def debts(self) -> Debts:
        """What was there before, of all that is to be given back some day."""
        return {} if self._journal is None else self._journal.debts

    def settle_with_kubelet(self, kept: Container[tuple[str, str]]) -> None:
        """Restore nothing any more in files, by path and name, that the kubelet keeps itself."""
        journal = self._journal
        if journal is None:
            return
        for key in [key for key in journal.debts if key[:2] in kept]:
            journal.settle_with_kubelet(key)
        journal.close()

    def left_behind(self) -> int:
        """Values of memqos that are in place, though nobody keeps them."""
        try:
            reading = read(self.configuration.journal, hierarchy_of(self.fs, self._boot()))
        except MemqosError:
            return 0
        found = survey(reading.debts.values(), self.fs, self._reserved)
        return sum(each.state in ("ours", "refused") for each in found)

    def give_back(self, debts: Collection[Owed], tally: Tally) -> RolledBack:
        """Put back what was there before in some places."""
        assert self._journal is not None
        driver = Timed(self._driver, tally)
        done = rollback(
            self.fs,
            driver,
            self._journal,
            self._cautions(),
            debts=debts,
            reserved=self._reserved,
        )
        if any(result.lingers for result in done.results):
            self._instance.renew()
        self._take_failure(self._journal, done.unrecorded, tally)
        return done

    def mend_journal(self) -> None:
        """Write the journal again where not all of it could be written."""
        if self.unrecorded is None or self._journal is None:
            return
        self._forget_gone(self._journal)
        if self._journal.failure is None:
            self.unrecorded = None
        self._journal.failure = None

    def _take_failure(self, journal: Journal, why: str | None, tally: Tally) -> None:
        if why is not None:
            self.unrecorded = f"the journal cannot be written: {why}"
            tally.fail("journal", self.unrecorded)
            journal.failure = None

    def roll_back(self) -> RolledBack:
        """Put back all that was there before."""
        return rollback(
            self.fs, self._driver, self._opened(), self._cautions(), reserved=self._reserved
        )

    def _opened(self) -> Journal:
        if self._journal is None:
            hierarchy = hierarchy_of(self.fs, self._boot())
            journal = self._writing.enter_context(writing(self.configuration.journal, hierarchy))
            self._forget_gone(journal)
            self._journal = journal
        return self._journal

    def _listed(self) -> Containers:
        return listed_below(self.fs.root, self.configuration.cri_socket)

    def _cautions(self) -> Cautions:
        try:
            with open(f"{self.roots.proc}/meminfo", encoding="ascii") as file:
                swap_free = meminfo_of(file.read()).get("SwapFree", 0)
        except OSError:
            swap_free = 0
        return Cautions(os.sysconf("SC_PAGE_SIZE"), swap_free)

    def _forget_gone(self, journal: Journal) -> None:
        """Keep the journal as short as the node allows, however long the agent runs."""
        self._recorded = 0
        if not journal.debts:
            return
        kept = set()
        for (path, cgroup), holding in journal.held.items():
            if self.fs.identity(path) is None:
                if not is_restorable(path, self._reserved):
                    kept.add((path, cgroup))
                    continue
                try:
                    self._driver.release(path, holding, list(holding.values))
                except (MemqosError, OSError):
                    kept.add((path, cgroup))
        journal.keep(
            [
                debt
                for debt in journal.debts.values()
                if debt.place in kept or self.fs.identity(debt.path) == debt.cgroup
            ]
        )

    def _alone(self) -> Lock:
        folder = self.configuration.journal
        try:
            private_folder(folder)
            return Lock(os.path.join(folder, _INSTANCE))
        except OSError as error:
            raise InputError(
                f"no lock can be taken here: {error.strerror}",
                file=folder,
                hint="run as root, or name another folder with --journal",
            ) from None

    def _boot(self) -> str:
        boot = read_machine(self.roots).boot_id
        if boot is None:
            raise Unreachable(
                "the kernel does not say which boot this is", hint="is /proc mounted?"
            )
        return boot
