"""Dumps read into a census: every object found, told apart by its UID, and placed in its file."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from memqos.cli.audit_sharing import Order, Quick, Sharing
from memqos.errors import InputError
from memqos.findings.census import Place
from memqos.findings.others import Others, Used
from memqos.findings.tallies import Tallies
from memqos.host.dumps import Anew, Block, Source, Yaml, text_of
from memqos.manifests.documents import read
from memqos.manifests.dumps.text import Found, Layout, Scanner
from memqos.manifests.objects import SNAPSHOT, objects

Progress = Callable[[int, int], None]
"""Told how many bytes and objects were read since the last time."""

FAULTS_LISTED: Final = 1000


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
        self._progress = progress
        self._sharing = Sharing(jobs, usage)
        self._uids: dict[str, int] = {}
        """Where they were met first: the number of a block."""
        self._twice: dict[Place, str] = {}
        self._blocks: dict[int, _Read] = {}
        self._places: dict[Place, tuple[str, int, int]] = {}

    def __enter__(self) -> "Survey":
        return self

    def __exit__(self, *_: object) -> None:
        self._sharing.end()

    def read(self, sources: Iterable[Source]) -> None:
        """Read all of these, one after the other."""
        for source in sources:
            scanner: Scanner | None = None
            first: int | None = None
            faults = len(self.faults), self.more_faults
            for number, part, quick in self._sharing.taken(source.blocks()):
                first = number if first is None else first
                if isinstance(part, Anew):
                    self._forget(first)
                    self.faults, self.more_faults = self.faults[: faults[0]], faults[1]
                    scanner = None
                elif isinstance(part, InputError):
                    self.fault(part)
                elif isinstance(part, Yaml):
                    self._yaml(number, part)
                else:
                    scanner = scanner or Scanner(part.file, part.layout)
                    self._block(number, part, quick, scanner)

    def others(self) -> Others:
        """What was read besides pods, by whomever."""
        return self._sharing.others()

    def tally(self, order: Order) -> Tallies:
        """All pods added up, but those whose UID another one has."""
        return self._sharing.tally(order._replace(dropped=self._twice))

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

    def _forget(self, number: int) -> None:
        """Take back what came of this block and all after it."""
        self._sharing.forget(number)
        self._uids = {uid: first for uid, first in self._uids.items() if first < number}
        self._twice = {place: uid for place, uid in self._twice.items() if place[0] < number}

    def _block(self, number: int, block: Block, quick: Quick | None, scanner: Scanner) -> None:
        line, before = scanner.position
        self._blocks[number] = _Read(block._replace(text=None), line, before)
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
        self._identify_all(number, taken.uids)
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
        for where, uid in self._sharing.own.take_found(place, found, file):
            self._places.setdefault(where, self._places[place])
            self._identify(where, uid)

    def _yaml(self, number: int, file: Yaml) -> None:
        """YAML, the slow way: what was read is written as JSON and taken from there."""
        whole = Block(file.file, Layout("lines", 0, None), 0, 0, is_last=True)
        self._blocks[number] = _Read(whole, 1, 0)
        index = 0
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

    def _identify_all(self, number: int, uids: list[str | None]) -> None:
        fresh = {uid: number for uid in uids if uid is not None}
        if len(fresh) + uids.count(None) == len(uids) and self._uids.keys().isdisjoint(fresh):
            self._uids.update(fresh)
            return
        for index, uid in enumerate(uids):
            if uid is not None:
                self._identify((number, index), uid)

    def _identify(self, place: Place, uid: str) -> None:
        if uid in self._uids:
            self._twice[place] = uid
        else:
            self._uids[uid] = place[0]

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
