"""Dumps read into censuses, by this process alone or by several at once, and counted there."""

import gc
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from memqos.api.dumps.text import Found, Layout, Scanner, Size
from memqos.api.manifests.documents import read
from memqos.api.manifests.objects import SNAPSHOT, objects
from memqos.api.node import Node
from memqos.cluster.limitrange import LimitRange
from memqos.cluster.quota import ResourceQuota
from memqos.errors import InputError
from memqos.findings.cases import Cases
from memqos.findings.census import Census, Place, Taken, Used
from memqos.findings.counting import Sizes, tally
from memqos.findings.tallies import Tallies, added
from memqos.host.dumps import Block, Reading, Source, Yaml, text_of
from memqos.plan.terms import Terms

if TYPE_CHECKING:
    from memqos.host.crew import Crew

Progress = Callable[[int, int], None]
"""Told how many bytes and objects were read since the last time."""

FAULTS_LISTED: Final = 1000
_AHEAD: Final = 3
"""Blocks given to a process at a time, so that it never waits."""


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


class Others(NamedTuple):
    """What was read besides pods."""

    nodes: dict[str, Node]
    limit_ranges: list[LimitRange]
    quotas: list[ResourceQuota]
    usage: dict[str, Used]
    passed_over: Counter[str]


class _Read(NamedTuple):
    """A block that was read, and where it starts."""

    block: Block
    line: int
    before: int


class Survey:
    """Reads dumps, and counts their pods under whatever terms are asked about."""

    def __init__(self, jobs: int, usage: dict[str, Used], progress: Progress) -> None:
        self.faults: list[InputError] = []
        self.more_faults = 0
        self._usage = usage
        self._progress = progress
        self._own = Census()
        self._uids: set[str] = set()
        self._twice: dict[Place, str] = {}
        self._blocks: list[_Read] = []
        self._places: dict[Place, tuple[str, int, int]] = {}
        self._crew = self._hired(jobs) if jobs > 1 else None

    def __enter__(self) -> "Survey":
        return self

    def __exit__(self, *_: object) -> None:
        if self._crew is not None:
            self._crew.dismiss()

    def read(self, sources: Iterable[Source]) -> None:
        """Read all of these, one after the other."""
        for source in sources:
            scanner: Scanner | None = None
            for block, quick in self._taken(source.blocks()):
                if isinstance(block, InputError):
                    self.fault(block)
                elif isinstance(block, Yaml):
                    self._yaml(block)
                else:
                    scanner = scanner or Scanner(block.file, block.layout)
                    self._block(block, quick, scanner)

    def others(self) -> Others:
        """What was read besides pods, by whomever."""
        parts: list[Others] = [_others(self._own)]
        if self._crew is not None:
            parts += self._crew.ask(None)
        nodes: dict[str, Node] = {}
        passed_over: Counter[str] = Counter()
        usage = Census()
        for part in parts:
            nodes |= part.nodes
            passed_over.update(part.passed_over)
            for key, used in part.usage.items():
                usage.add_usage(key, used.containers, used.total)
        return Others(
            nodes,
            [each for part in parts for each in part.limit_ranges],
            [each for part in parts for each in part.quotas],
            usage.usage,
            passed_over,
        )

    def tally(self, order: Order) -> Tallies:
        """All pods added up, but those whose UID another one has."""
        order = order._replace(dropped=self._twice)
        parts = self._crew.ask(order) if self._crew is not None else []
        total = _tally(self._own, self._usage, order)
        for part in parts:
            added(total, part)
        return total

    def tell_twice(self) -> None:
        """List pods that are there twice as faults."""
        for place, uid in sorted(self._twice.items()):
            self.refuse(place, f"the UID {uid} is that of a pod read before: not counted")

    def fault(self, error: InputError) -> None:
        """Something could not be read."""
        if len(self.faults) < FAULTS_LISTED:
            self.faults.append(error)
        else:
            self.more_faults += 1

    def refuse(self, place: Place, what: str, field: str | None = None) -> None:
        """Something is wrong with a pod that was read: say where it stands."""
        if len(self.faults) >= FAULTS_LISTED:
            self.more_faults += 1
            return
        file, line, column = self._located(place)
        self.fault(InputError(what, file=file, line=line, column=column, field=field))

    def _hired(self, jobs: int) -> "Crew":
        from memqos.host.crew import Crew

        return Crew(jobs, self._hire)

    def _hire(self) -> Callable[[Any], Any]:
        """What one of several processes does with a message."""
        gc.disable()
        census, reading, usage = Census(), Reading(), self._usage

        def handle(message: Any) -> Any:
            if message is None:
                return _others(census)
            if isinstance(message, Order):
                return _tally(census, usage, message)
            number, block = message
            return number, _quick(census, reading, number, block)

        return handle

    def _taken(
        self, blocks: Iterator[Block | Yaml | InputError]
    ) -> Iterator[tuple[Block | Yaml | InputError, Quick | None]]:
        """Every block in order, with what came of it the quick way."""
        if self._crew is None:
            reading = Reading()
            for block in blocks:
                if isinstance(block, Block):
                    yield block, _quick(self._own, reading, len(self._blocks), block)
                else:
                    yield block, None
            return
        waiting: deque[tuple[int, Block | Yaml | InputError]] = deque()
        done: dict[int, Quick | None] = {}
        free = deque([*range(len(self._crew))] * _AHEAD)
        number = len(self._blocks)
        for block in blocks:
            if isinstance(block, InputError):
                waiting.append((-1, block))
            else:
                waiting.append((number, block))
                if isinstance(block, Block):
                    while not free:
                        self._await(self._crew, free, done)
                    self._crew.send(free.popleft(), (number, block))
                number += 1
            yield from self._ready(waiting, done)
        while waiting:
            self._await(self._crew, free, done)
            yield from self._ready(waiting, done)

    def _ready(
        self,
        waiting: deque[tuple[int, Block | Yaml | InputError]],
        done: dict[int, Quick | None],
    ) -> Iterator[tuple[Block | Yaml | InputError, Quick | None]]:
        while waiting:
            number, block = waiting[0]
            if isinstance(block, Block) and number not in done:
                return
            waiting.popleft()
            yield block, done.pop(number, None)

    def _await(self, crew: "Crew", free: deque[int], done: dict[int, Quick | None]) -> None:
        for worker, (number, quick) in crew.answers():
            free.append(worker)
            done[number] = quick

    def _block(self, block: Block, quick: Quick | None, scanner: Scanner) -> None:
        number = len(self._blocks)
        line, before = scanner.position
        self._blocks.append(_Read(block._replace(text=None), line, before))
        if quick is None:
            try:
                found = list(scanner.feed(text_of(block), is_last=block.is_last))
            except InputError as error:
                found = [error]
            self._objects(number, block.file, found)
            self._progress(block.end - block.start, len(found))
            return
        taken, size = quick
        # What decodes as a whole started where it was cut: what came before it never ended.
        self._objects(number, block.file, scanner.abandon(), first=taken.objects)
        scanner.pass_over(size)
        if block.is_last:
            self._objects(number, block.file, scanner.feed(b"", is_last=True))
        for index, uid in enumerate(taken.uids):
            if uid is not None:
                self._identify((number, index), uid)
        self._progress(block.end - block.start, taken.objects)

    def _objects(
        self, number: int, file: str, found: Iterable[Found | InputError], first: int = 0
    ) -> None:
        for index, each in enumerate(found, first):
            if isinstance(each, InputError):
                self.fault(each)
                continue
            try:
                self._object((number, index), file, each)
            except InputError as error:
                self.fault(error)

    def _object(self, place: Place, file: str, found: Found) -> None:
        self._places[place] = (file, found.line, found.column)
        for where, uid in self._own.take_found(place, found, file):
            self._places.setdefault(where, self._places[place])
            self._identify(where, uid)

    def _yaml(self, file: Yaml) -> None:
        """YAML, the slow way: what was read is written as JSON and taken from there."""
        number, index = len(self._blocks), 0
        whole = Block(file.file, Layout("lines", 0, None), 0, 0, is_last=True)
        self._blocks.append(_Read(whole, 1, 0))
        for document in read(file.text, file.file):
            for item in (document,) if isinstance(document, InputError) else objects(document):
                if isinstance(item, InputError):
                    self.fault(item)
                    continue
                line, column = item.document.position(item.path)
                kind = {} if item.kind == SNAPSHOT else {"kind": item.kind}
                text = msgspec.json.encode(item.data | kind)
                try:
                    self._object((number, index), file.file, Found(text, line, column))
                except InputError as error:
                    # The place within the JSON says nothing: the field does, in the YAML.
                    self.fault(item.refused(error.what, error.field or "", error.hint))
                index += 1
        self._progress(len(file.text), index)

    def _identify(self, place: Place, uid: str) -> None:
        if uid in self._uids:
            self._twice[place] = uid
        self._uids.add(uid)

    def _located(self, place: Place) -> tuple[str, int | None, int | None]:
        if place in self._places:
            return self._places[place]
        block, line, before = self._blocks[place[0]]
        if block.is_text:
            return block.file, None, None
        layout = block.layout._replace(lines=line - 1, before=before)
        found = Scanner(block.file, layout).feed(text_of(block), is_last=False)
        for index, each in enumerate(found):
            if index == place[1] and isinstance(each, Found):
                return block.file, each.line, each.column
        return block.file, None, None


def _quick(census: Census, reading: Reading, number: int, block: Block) -> Quick | None:
    try:
        read = reading.objects_of(block)
    except OSError:
        return None
    if read is None:
        return None
    text, size = read
    taken = census.take(number, text, block.layout.form)
    return None if taken is None else (taken, size)


def _others(census: Census) -> Others:
    return Others(
        census.nodes, census.limit_ranges, census.quotas, census.usage, census.passed_over
    )


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
