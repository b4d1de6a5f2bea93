"""The core of an agent: from events and observations to the writes that keep a node as planned.

It reads no clock, no file and no socket. Events come in as calls with the time. A pass is: `take`,
which says whether to ask for pods, `accept` with these, `scope`, which says what to read, `judge`,
which turns what was read into steps, and `settle` with what came of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from memqos.agent.core.foreign import Foreign
from memqos.agent.core.guarding import Guard
from memqos.agent.core.node_intent import Aims
from memqos.agent.core.notices import Notified
from memqos.agent.core.observed import Cgroups, Checkpoint, Known, Seen
from memqos.agent.core.pod_intent import FILES, KEPT, Desires
from memqos.agent.core.restore import Returns
from memqos.agent.core.schedule import AGAIN, Due, Schedule
from memqos.agent.core.selection import Choice, choose
from memqos.agent.tally import Tally
from memqos.agent.telling import announce_written, tell_left_out, tell_of_wish, tell_written
from memqos.converge.rollback import RolledBack
from memqos.converge.steps import Moved, Step, steps_of
from memqos.converge.undo import Debts, Owed
from memqos.converge.values import shown
from memqos.converge.writing import FAILED, Result
from memqos.kube.pod import Pod
from memqos.kube.resources_in_use import is_resized
from memqos.plan.changes import Change, compare, parts
from memqos.plan.cpuset import MEMS
from memqos.plan.names import inner
from memqos.plan.tree import Cgroup, Tree

if TYPE_CHECKING:
    from memqos.agent.core.bindings import Bindings

READ: Final = (*FILES, "memory.max", "memory.current")
"""What is read of every cgroup."""
_ASKED_FOR: Final = 15.0
"""Seconds in which the source is asked for a new cgroup. No source tells of pause containers."""


class Scope(NamedTuple):
    """What has to be read."""

    below: tuple[str, ...]
    """Cgroups to read with all that is in them."""
    alone: tuple[str, ...]
    """Cgroups to read by themselves."""
    files: tuple[str, ...] = READ


class Reconciler:
    """Keeps a node as planned."""

    def __init__(self, desires: Desires, now: float, guard: Guard | None = None) -> None:
        self.guard = guard
        self.told: Sequence[Pod] = ()
        """All pods as the source last told them, those that have ended too."""
        self.changed_at = now
        """When what is wanted of any of them last changed."""
        self.tally = Tally()
        self.cgroups = Cgroups(desires.names)
        self.pending: dict[str, tuple[Change, ...]] = {}
        """Path → what is not as planned there."""
        self._due = Due()
        self._pods: frozenset[str] = frozenset()
        self._choice = Choice()
        self._unnamed: dict[str, float] = {}
        self._limit_writes: dict[str, float] = {}
        """Path of a pod → when memory.max of one of its containers was last written."""
        self._affected: frozenset[str] = frozenset()
        self._notified = Notified()
        self.bindings: Bindings | None = None
        """Containers to be bound to NUMA nodes, where that is asked for."""
        self._want(desires, self._bindings(desires, self.cgroups), now)
        self.foreign = Foreign(self.tally, self.aims, self.configuration.fight)

    def follow(self, desires: Desires, now: float) -> None:
        """Want something else from now on."""
        pods, is_told = self.told, self.aims.is_told
        same = desires.names == self.cgroups.names
        cgroups = self.cgroups if same else Cgroups(desires.names)
        # It may be refused, and then all is as before.
        bindings = self._bindings(desires, cgroups)
        self.cgroups = cgroups
        for known in self.cgroups.by_path.values():
            known.held = {}
        self.pending.clear()
        self._want(desires, bindings, now)
        self.foreign.follow(self.aims, self.configuration.fight)
        if self.foreign.unconfirmed is not None:
            self.schedule.confirm_at = now
        if is_told:
            self.accept(pods, now)

    def _bindings(self, desires: Desires, cgroups: Cgroups) -> "Bindings | None":
        if desires.configuration.numa == "off":
            return None
        from memqos.agent.core.bindings import bindings_of

        return bindings_of(desires, cgroups, self.tally, self.bindings)

    def _want(self, desires: Desires, bindings: "Bindings | None", now: float) -> None:
        self.desires = desires
        self.configuration = desires.configuration
        self.bindings = bindings
        self.aims = Aims(desires, self.cgroups, self.guard, bindings)
        self.schedule = Schedule(now, polls=self.configuration.mode == "enforce")
        self._returns = Returns(self.cgroups, self.schedule, self.tally)

    # What happens.

    def accept(self, pods: Iterable[Pod], now: float) -> None:
        """Take in all the pods of the node, as the source tells them."""
        self.told = tuple(pods)
        before = self.aims.by_path
        for wish in self.aims.accept(self.told):
            self.changed_at = now
            old = before.get(wish.path or "")
            if old is not None and is_resized(old.pod, wish.pod):
                self.foreign.resize(old.path or "", now)
            if wish.path is None or self.aims.by_path.get(wish.path) is wish:
                tell_of_wish(self.tally, wish)
            if wish.path is not None:
                self._take_up(wish.path)
                self.schedule.look_at(wish.path, now)

    def heard(self, checkpoint: Checkpoint, now: float) -> None:
        """The kubelet's memory_manager_state was looked at."""
        if self.bindings is not None:
            for pod in self.bindings.heard(checkpoint):
                self.schedule.look_at(pod, now)

    def appeared(self, path: str, now: float) -> None:
        """A cgroup was made."""
        pod = self.cgroups.pod_of(path)
        if pod is not None:
            self.schedule.look_at(pod, now)
            if not self.aims.names(path, pod):
                self.schedule.ask(now)
        elif self.desires.names.recognise(path) is not None:
            self.schedule.resync_at = now

    def vanished(self, path: str, now: float) -> None:
        """A cgroup is gone."""
        pod = self.cgroups.pod_of(path)
        if path in self.cgroups:
            self._forget(path)
        if pod is not None:
            self.schedule.look_at(pod, now)

    def note_limit_write(self, path: str, now: float) -> None:
        """Somebody has written memory.max of a container: as a rule a kubelet that resizes it."""
        known = self.cgroups.by_path.get(path)
        if (
            known is None
            or known.pod is None
            or now - known.first_seen < self.configuration.fight.grace
        ):
            return  # who makes a container writes all of its files
        # That alone is no resize: a runtime writes all files of a container at every update, those
        # that memqos asks it for included. Whoever goes on writing is looked at once a second.
        looked = self._limit_writes.get(known.pod, float("-inf"))
        self.schedule.look_at(known.pod, now if now - looked >= AGAIN else now + AGAIN)
        self._limit_writes[known.pod] = now

    def doubt_kubelet(self, now: float) -> None:
        """Have the kubelet asked for its configuration once more, unless it is being asked."""
        if self.foreign.unconfirmed is None:
            self.foreign.doubt(now)
            self.schedule.confirm_at = now

    def note_question(self) -> None:
        """The kubelet is asked for its configuration, with all in view that was seen so far."""
        self.foreign.is_asked = True

    def confirm(self, now: float, *, answered: bool) -> None:
        """Whether the kubelet has told its configuration: to the last question, or an earlier."""
        if answered:
            self.foreign.confirm(now)
        elif self.foreign.unconfirmed is not None:
            self.schedule.confirm_at = now + AGAIN

    def resync(self, now: float) -> None:
        """Events were missed, or somebody asks: look at everything."""
        self.schedule.resync_at = now

    # The pass.

    def take(self, now: float, random: float = 0.5) -> Due:
        """What is due; `random`, from 0 to 1, spreads the resyncs of many nodes."""
        self._due = self.schedule.take(now)
        if self._due.whole:
            spread = 1 + self.configuration.jitter * (2 * random - 1)
            self.schedule.resync_at = now + self.configuration.resync * spread
        return self._due

    @property
    def is_whole(self) -> bool:
        """Whether what is due is the whole node."""
        return self._due.whole

    def scope(self, now: float) -> Scope:
        """What to read: the cgroups above the pods always, else what is due."""
        self._pods = self.schedule.take_pods(now)
        names, bindings = self.desires.names, self.bindings
        files = READ if bindings is None else (*READ, MEMS)
        if self._due.whole:
            above = () if bindings is None else bindings.above
            alone = [*above, *[each.path for each in self.aims.reserved]]
            return Scope((names.kubepods,), tuple(alone), files)
        return Scope(tuple(sorted(self._pods)), names.levels, files)

    def judge(self, seen: Seen, now: float) -> tuple[Step, ...]:
        """What to write, given what was read of the scope."""
        for what, why in seen.refused.items():
            self.tally.fail("read", f"{what}: {why}")
        happened = self.foreign.notice(seen.signs, now)
        if happened.reload is not None and self.desires.names.driver == "systemd":
            # systemd takes back what it was not told of, on every unit.
            self.schedule.resync_at = now
        affected = self._take_in(seen, now)
        for pod in self._pods:
            written = self._limit_writes.get(pod, float("-inf"))
            if self.foreign.is_resizing(pod, now) or now - written < AGAIN:
                # Limits come first, then the other files, container after container.
                self.schedule.look_at(pod, now + AGAIN)
        other = self.aims.reconsider()
        tell_left_out(self.tally, self.aims, other)
        if self.bindings is not None:
            other |= self.bindings.update(affected, self.aims)
        for pod in affected | other | self._pods:
            for notice in self._notified.new(pod, self.aims.notices(pod)):
                wish = self.aims.by_path[pod]
                self.tally.notice(wish.key, wish.pod, notice)
        self._affected = frozenset(affected | other)
        tree = {each.path: each for pod in self._affected for each in self.aims.of(pod)}
        tree |= {each.path: each for each in self.aims.above}
        if self._due.whole:
            tree |= {each.path: each for each in self.aims.reserved}
        known, names = self.cgroups.by_path, self.desires.names
        paths = [each for path in tree for each in (path, inner(path))]
        there = {path: known[path].files for path in paths if path in known}
        compared = compare(Tree(tree), there, names, self.desires.page_size).changes
        changes = [each for each in compared if not self.foreign.is_kubelets(each)]
        self._note(
            [part for each in tree.values() for part in parts(each, there, names)], changes, now
        )
        self._choice = choose(changes, self.aims, self.cgroups, self.schedule, self.foreign, now)
        if self.foreign.unconfirmed is not None and self.schedule.confirm_at is None:
            self.schedule.confirm_at = now
        identities = {path: each.identity for path, each in known.items()}
        return steps_of(self._choice.changes, identities, self.aims.kubelet_keeps)

    def returns(self, debts: Debts, now: float) -> tuple[Owed, ...]:
        """What to give back, given all that memqos has written over; after `judge`."""
        return self._returns.due(self._left(), debts, now)

    def given_back(self, done: RolledBack, debts: Sequence[Owed], now: float) -> None:
        """Take in what came of it."""
        self._returns.settle(done, debts, now)
        self.aims.claims_changed()
        if self.configuration.mode == "observe":
            self.schedule.resync_at = now

    @property
    def owes(self) -> int:
        """Values still to be given back, of those that were looked at last."""
        return self._returns.owes

    def settle(self, results: Sequence[Result], moved: Sequence[Moved], now: float) -> None:
        """Take in what came of the steps."""
        failed = {result.change.path for result in results if result.end in FAILED}
        for path in {result.change.path for result in results} - failed:
            self.schedule.backoff.clear(path)
        for path in failed:
            self.schedule.failed(path, self.cgroups.pod_of(path), now)
        for result in results:
            self._settle(result, now)
        for each in moved:
            self._look_again(each.step.change.path, now)
        # Only where others have given something up there may be room now.
        given_up = any(
            result.end == "written" and result.change.file == "memory.min" for result in results
        )
        for pod in self._choice.waiting:
            self.schedule.look_at(pod, now if given_up else now + AGAIN)

    # What was seen.

    def _take_in(self, seen: Seen, now: float) -> set[str]:
        """Bring what is known up to date; the pods that this is about."""
        looked = list(self.cgroups.pods) if self._due.whole else self._pods
        read = [*self.desires.names.levels]
        for pod in looked:
            read += self.cgroups.family(pod)
        for path in read:
            if path not in seen.cgroups and path in self.cgroups:
                self._forget(path)
        new, changed, limited = self.cgroups.take_in(seen, now)
        for path in new:
            self._arrived(path, now)
        for pod in limited:
            self.foreign.resize(pod, now)
            self.schedule.ask(now)  # its source knows the new resources
        for each in changed:
            self.foreign.changed(each, now)
        self._unnamed = {
            path: since
            for path, since in self._unnamed.items()
            if now - since < _ASKED_FOR and not self._is_named(path)
        }
        if self._unnamed:
            self.schedule.ask_again(now)
        if new or self._due.whole or any(pod not in self.aims.by_path for pod in looked):
            self.aims.claims_changed()
        return set(self.cgroups.pods if self._due.whole else looked)

    def _arrived(self, path: str, now: float) -> None:
        pod = self.cgroups.pod_of(path)
        if pod is None:
            return
        if not self._due.whole:
            self.schedule.look_at(pod, now + AGAIN)
        if not self._is_named(path):
            self._unnamed[path] = now
            if not self._due.asks:
                self.schedule.ask(now)

    def _is_named(self, path: str) -> bool:
        """Whether the source has told of a cgroup, or it is gone."""
        known = self.cgroups.by_path.get(path)
        return known is None or known.pod is None or self.aims.names(path, known.pod)

    def _note(self, tree: Sequence[Cgroup], changes: Sequence[Change], now: float) -> None:
        """Hold what is as it should be, and remember what is not."""
        differing: dict[str, list[Change]] = {}
        for change in changes:
            differing.setdefault(change.path, []).append(change)
        for cgroup in tree:
            path = cgroup.path
            known = self.cgroups.by_path.get(path)
            if known is None:
                continue
            wrong = differing.get(path, ())
            if wrong:
                self.pending[path] = tuple(wrong)
            else:
                self.pending.pop(path, None)
            if self.aims.is_enforced(cgroup, known.pod):
                files = {change.file for change in wrong}
                known.right_at = now
                known.held |= {
                    file: known.files[file]
                    for file in KEPT
                    if file in known.files and file not in files
                }
                if MEMS not in cgroup.settings:
                    # Bound by others, or not at all: whatever they do with it is no drift.
                    known.held.pop(MEMS, None)

    def _left(self) -> Iterator[str]:
        """The cgroups, of those looked at, that memqos does not write to."""
        for pod in self._affected:
            if self.aims.leaves("pod", pod):
                yield from self.cgroups.family(pod)
        if self.aims.leaves("qos"):
            yield from self.desires.names.levels
        if self._due.whole and self.aims.leaves("reserved"):
            yield from (each.path for each in self.aims.reserved)

    def _take_up(self, pod: str) -> None:
        """Another mind about a pod: what is held, and what others did, is judged anew."""
        for path in self.cgroups.family(pod):
            self._returns.forget(path)
            if self.aims.leaves("pod", pod):
                self.cgroups.by_path[path].held = {}
                self.pending.pop(path, None)
                if self.guard is not None:
                    self.guard.drop(path)

    # What was written.

    def _settle(self, result: Result, now: float) -> None:
        change, end = result.change, result.end
        self.tally.writes[change.file, end] += 1
        known = self.cgroups.by_path.get(change.path)
        if end == "written" and known is not None:
            self._written(change, known, now)
        elif end in ("gone", "overtaken"):
            self._look_again(change.path, now)
        elif end == "withheld":
            self._ramp_on(change.path, now)
        elif end in FAILED:
            self.tally.fail("write", f"{change.path}/{change.file}: {end}: {result.detail}")

    def _written(self, change: Change, known: Known, now: float) -> None:
        value = shown(change.file, change.new, self.desires.page_size)
        known.files[change.file] = known.held[change.file] = value
        if change.file == MEMS and not value:
            # With processes in it a cgroup keeps a list, and that of all nodes will do.
            del known.held[MEMS]
        known.right_at = now
        tell_written(self.tally, change, value, now)
        rest = [
            each
            for each in self.pending.pop(change.path, ())
            if (each.file, each.new) != (change.file, change.new)
        ]
        if rest:
            self.pending[change.path] = tuple(rest)
        if any(each.file == change.file for each in rest):
            self._ramp_on(change.path, now)
        else:
            drift = self.foreign.drifts.get((change.path, change.file))
            announce_written(self.tally, self.aims.wish_of(known.pod), change, value, drift)

    def _ramp_on(self, path: str, now: float) -> None:
        at = now + self.configuration.ramp.interval
        self.schedule.ramp(path, self.cgroups.pod_of(path), at)

    def _look_again(self, path: str, now: float) -> None:
        pod = self.cgroups.pod_of(path)
        if pod is not None:
            self.schedule.look_at(pod, now)

    def _forget(self, path: str) -> None:
        for each in self.cgroups.drop(path):
            self.schedule.forget(each)
            self.foreign.forget(each)
            self.pending.pop(each, None)
            self._returns.forget(each)
            self._limit_writes.pop(each, None)
        if self.bindings is not None and path not in self.cgroups.pods:
            self.bindings.vanished(path)
        self.aims.claims_changed()
