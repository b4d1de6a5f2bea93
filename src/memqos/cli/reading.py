"""Pods out of files, for commands: what cannot be read is said at once, and the rest goes on."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from memqos.api.documents import Document, read
from memqos.api.pod import Pod
from memqos.api.workloads import KINDS, Template, pods
from memqos.cli.output import complain
from memqos.errors import InputError
from memqos.host.manifests import load


class Reader:
    """Reads manifests and counts the faults it met.

    A folder holds whatever an application needs, so objects without pods are passed over there
    and counted; in a file that was named they are a fault.
    """

    def __init__(self) -> None:
        self.faults = 0
        self._passed_over: Counter[str] = Counter()

    def pods(self, paths: Sequence[str]) -> Iterator[tuple[Template, Pod]]:
        """Every pod that could be read, and where it comes from."""
        for path in paths:
            from_folder = os.path.isdir(path)
            for file, data in load([path]):
                if isinstance(data, InputError):
                    self.refuse(data)
                    continue
                for document in read(data, file):
                    if isinstance(document, InputError):
                        self.refuse(document)
                    elif from_folder and document.kind and document.kind not in KINDS:
                        self._passed_over[document.kind] += 1
                    else:
                        yield from self._decoded(document)
        if self._passed_over:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self._passed_over.items())
            complain(f"passed over, as they hold no pods: {kinds}")

    def refuse(self, error: InputError) -> None:
        """Count a fault and say it."""
        self.faults += 1
        complain(error)

    def _decoded(self, document: Document) -> Iterator[tuple[Template, Pod]]:
        for template in pods(document):
            if isinstance(template, InputError):
                self.refuse(template)
                continue
            try:
                yield template, template.decode(Pod)
            except InputError as error:
                self.refuse(error)
