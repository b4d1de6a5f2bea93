"""What the author of a pod should know of it, told once."""

from collections.abc import Sequence
from typing import Literal

import msgspec

NoticeReason = Literal["NumaUnaligned", "NumaRefused", "NumaUnknown", "NumaBeyondParent"]
"""Why a pod's memory is not bound to NUMA nodes:

NumaUnaligned     its pod-level resources are ignored for alignment
NumaRefused       no nodes have room for it by the rules
NumaUnknown       the kubelet's state does not know it
NumaBeyondParent  a cgroup above it, or the machine, does not have its nodes
"""


class Notice(msgspec.Struct, frozen=True):
    """One thing to know of a pod."""

    reason: NoticeReason
    what: str
    hint: str | None = None


class NoticeHistory:
    """What has been told of each pod."""

    def __init__(self) -> None:
        self._reasons: dict[str, frozenset[NoticeReason]] = {}

    def select_new(self, pod: str, notices: Sequence[Notice]) -> list[Notice]:
        """Those of a pod's notices that were not there before."""
        told = self._reasons.pop(pod, frozenset())
        if notices:
            self._reasons[pod] = frozenset([notice.reason for notice in notices])
        return [notice for notice in notices if notice.reason not in told]
