"""Which pods are meant: by namespace and by label."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from memqos.kube.label_selection import matches
from memqos.kube.pod import Pod

Namespace = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", extra={"words": "the name of a namespace"}
    ),
]


class Selector(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Pods by namespace and label; one that says nothing picks all."""

    namespaces: Annotated[
        tuple[Namespace, ...], Meta(description="Only pods of these namespaces.")
    ] = ()
    not_namespaces: Annotated[
        tuple[Namespace, ...], Meta(description="No pods of these namespaces.")
    ] = ()
    labels: Annotated[
        str,
        Meta(
            description="Only pods with such labels: "
            "tier in (web, db), team=a, stage!=test, gpu, !batch."
        ),
    ] = ""

    def picks(self, pod: Pod, namespace: str | None = None) -> bool:
        """Whether a pod is meant, which may not yet say which namespace it goes to."""
        where = namespace or pod.metadata.namespace or "default"
        labels: Mapping[str, str] = pod.metadata.labels or {}
        return (
            (not self.namespaces or where in self.namespaces)
            and where not in self.not_namespaces
            and (not self.labels or matches(self.labels, labels))
        )
