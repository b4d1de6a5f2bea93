"""Blocks read and pods counted by this process, and by others beside it where that is asked for."""

import gc
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memqos.errors import InputError
from memqos.findings.cases import Cases
from memqos.findings.census import Census, Place, Taken
from memqos.findings.counting import Sizes, tally
from memqos.findings.others import Kept, Others, Used, others_in
from memqos.findings.tallies import Tallies, added
from memqos.host.dumps import Anew, Block, Part, Reading
from memqos.manifests.dumps.text import Size
from memqos.plan.terms import Terms

if TYPE_CHECKING:
    from memqos.host.workers import Crew

_AHEAD: Final = 6
"""Blocks given to another process at a time, so that it never waits while this one is busy."""

Quick = tuple[Taken, Size]
"""What came of a block that was read the quick way, and how far it moves on."""


class Order(NamedTuple):
    """What pods are to be counted under."""

    terms: Terms
    sizes: Sizes
    dropped: dict[Place, str]
    usage: dict[str, Used]
    """What the dumps themselves say of usage."""
    before: Terms | None = None
    rows: bool = False


class Numbered(NamedTuple):
    """A part of a dump, with its number, and what came of it the quick way."""

    number: int
    part: Part
    quick: Quick | None = None


class _Forget(NamedTuple):
    number: int


class Sharing:
    """Does the work, with as many processes as it is given."""

    def __init__(self, jobs: int, usage: dict[str, Used]) -> None:
        self.own = Census()
        self._reading = Reading()
        self._usage = usage
        self._number = 0
        self._crew = self._hired(jobs - 1) if jobs > 1 else None

    def end(self) -> None:
        """Let the other processes go."""
        if self._crew is not None:
            self._crew.dismiss()

    def taken(self, parts: Iterator[Part]) -> Iterator[Numbered]:
        """Every part in order, with what came of it the quick way."""
        waiting: deque[Numbered] = deque()
        done: dict[int, Quick | None] = {}
        free = deque([*range(0 if self._crew is None else len(self._crew))] * _AHEAD)
        for part in parts:
            number = self._number
            waiting.append(Numbered(number, part))
            if isinstance(part, Block):
                # Whoever is free takes it; if nobody is, there is time to do it here.
                worker = _taker(part, free)
                if self._crew is not None and worker is not None:
                    free.remove(worker)
                    self._crew.send(worker, (number, part))
                else:
                    done[number] = quick(self.own, self._reading, number, part)
            if not isinstance(part, InputError | Anew):
                self._number += 1
            if self._crew is not None:
                # What comes after a new start has to come after all that was before it.
                while isinstance(part, Anew) and len(free) < _AHEAD * len(self._crew):
                    self._await(self._crew, free, done, None)
                self._await(self._crew, free, done, 0.0)
            yield from _ready(waiting, done)
        while waiting:
            assert self._crew is not None
            self._await(self._crew, free, done, None)
            yield from _ready(waiting, done)

    def forget(self, number: int) -> None:
        """Take back what came of this block and all after it; none of them is being read."""
        self.own.forget(number)
        if self._crew is not None:
            self._crew.tell(_Forget(number))
            self._crew.heard()

    def others(self) -> Others:
        """What was read besides pods, by whomever."""
        total = Census()
        parts: list[tuple[list[Kept], dict[str, Used]]] = [(self.own.kept, self.own.usage)]
        if self._crew is not None:
            self._crew.tell(None)
            parts += self._crew.heard()
        for kept, usage in parts:
            total.kept += kept
            for key, used in usage.items():
                total.merge_usage(key, used)
        return others_in(total.kept, total.usage)

    def tally(self, order: Order) -> Tallies:
        """All pods added up."""
        if self._crew is not None:
            self._crew.tell(order)
        total = _tally(self.own, self._usage, order)
        if self._crew is not None:
            for part in self._crew.heard():
                added(total, part)
        return total

    def _hired(self, count: int) -> "Crew":
        from memqos.host.workers import Crew

        return Crew(count, self._hire)

    def _hire(self) -> Callable[[Any], Any]:
        """What another process does with a message."""
        gc.disable()
        census, reading, usage = Census(), Reading(), self._usage

        def handle(message: Any) -> Any:
            if message is None:
                return census.kept, census.usage
            if isinstance(message, Order):
                return _tally(census, usage, message)
            if isinstance(message, _Forget):
                return census.forget(message.number)
            number, block = message
            return number, quick(census, reading, number, block)

        return handle

    def _await(
        self,
        crew: "Crew",
        free: deque[int],
        done: dict[int, Quick | None],
        seconds: float | None,
    ) -> None:
        for worker, (number, found) in crew.answers(seconds):
            free.append(worker)
            done[number] = found


def _taker(block: Block, free: deque[int]) -> int | None:
    """Who is to read a block; None where nobody is free.

    A text is given only to one who is idle: two who send each other more than the pipe between them
    holds would wait for ever.
    """
    if block.text is None:
        return free[0] if free else None
    return next((worker for worker in free if free.count(worker) == _AHEAD), None)


def _ready(waiting: deque[Numbered], done: dict[int, Quick | None]) -> Iterator[Numbered]:
    while waiting:
        number, part, _ = waiting[0]
        is_block = isinstance(part, Block)
        if is_block and number not in done:
            return
        waiting.popleft()
        yield Numbered(number, part, done.pop(number) if is_block else None)


def quick(census: Census, reading: Reading, number: int, block: Block) -> Quick | None:
    """Read a block as a whole; None where that cannot be done."""
    try:
        read = reading.objects_of(block)
    except OSError:
        return None
    if read is None:
        return None
    text, size = read
    taken = census.take(number, text, block.layout.form)
    return None if taken is None else (taken, size)


def _tally(census: Census, usage: dict[str, Used], order: Order) -> Tallies:
    row = None
    if order.rows:
        from memqos.draw.audit_rows import Rows

        row = Rows().row
    return tally(
        census,
        Cases(census.texts, order.terms),
        order.sizes,
        {**usage, **order.usage} if order.usage else usage,
        order.dropped,
        before=None if order.before is None else Cases(census.texts, order.before),
        row=row,
    )
