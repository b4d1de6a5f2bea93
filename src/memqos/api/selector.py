"""Which pods are meant: by namespace and by label."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from memqos.api.label_selection import matches

Namespace = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", extra={"words": "the name of a namespace"}
    ),
]


class Selector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Pods by namespace and label; one that says nothing picks all."""

    namespaces: tuple[Namespace, ...] = ()
    not_namespaces: tuple[Namespace, ...] = ()
    labels: str = ""

    def picks(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod is meant."""
        return (
            (not self.namespaces or namespace in self.namespaces)
            and namespace not in self.not_namespaces
            and matches(self.labels, labels)
        )
