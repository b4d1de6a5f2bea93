"""The records of a pod, read in a thread: an agent may be slow, and the screen goes on."""

import threading
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from memqos.converge.node_sources import NodeSource
from memqos.errors import MemqosError
from memqos.record.recordings import Recording

_AGE: Final = 10.0
"""Seconds for which records that were read are good."""
_PATIENCE: Final = 0.2
"""Seconds to wait for them: files are there at once."""


class _Answer(NamedTuple):
    pod: str
    at: float
    found: Sequence[Recording] | MemqosError | OSError


class PodRecords:
    """The records of the pod that is shown in full."""

    def __init__(self, source: NodeSource) -> None:
        self._source = source
        self._answer: _Answer | None = None
        self._thread: threading.Thread | None = None

    def latest(self, pod: str) -> Sequence[Recording] | None:
        """What is recorded of it; None until that is read."""
        known = self._answer
        is_good = known is not None and known.pod == pod and time.monotonic() - known.at <= _AGE
        if not is_good and self._thread is None:
            self._thread = threading.Thread(target=self._read, args=(pod,), daemon=True)
            self._thread.start()
        if (thread := self._thread) is not None:
            thread.join(_PATIENCE)
        known = self._answer
        if known is None or known.pod != pod:
            return None
        if isinstance(known.found, Exception):
            raise known.found
        return known.found

    def _read(self, pod: str) -> None:
        try:
            found: Sequence[Recording] | MemqosError | OSError = self._source.recordings(pod)
        except (MemqosError, OSError) as error:
            found = error
        self._answer = _Answer(pod, time.monotonic(), found)
        self._thread = None
