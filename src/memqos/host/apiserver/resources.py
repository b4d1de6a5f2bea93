"""The resources memqos reads, and how the API server names them."""

from typing import Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from memqos.cluster.limit_range import LimitRange
from memqos.cluster.quota import ResourceQuota
from memqos.kube.node import Node
from memqos.kube.pod import Pod

_T = TypeVar("_T")
Query = dict[str, str]


class ApiResource(msgspec.Struct, Generic[_T], frozen=True):
    """A kind of object, and the struct it is decoded into."""

    group: str
    version: str
    plural: str
    type: type[_T]
    is_namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The path of one object, or of all: in a namespace, or in the cluster."""
        parts = ["apis", self.group] if self.group else ["api"]
        parts.append(self.version)
        if namespace and self.is_namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        return "/" + "/".join(quote(part, safe="") for part in parts)


POD_RESOURCE: Final = ApiResource("", "v1", "pods", Pod)
NODE_RESOURCE: Final = ApiResource("", "v1", "nodes", Node, is_namespaced=False)
LIMIT_RANGE_RESOURCE: Final = ApiResource("", "v1", "limitranges", LimitRange)
QUOTA_RESOURCE: Final = ApiResource("", "v1", "resourcequotas", ResourceQuota)


class Selection(msgspec.Struct, frozen=True):
    """Which objects; by default all."""

    namespace: str | None = None
    fields: str | None = None
    labels: str | None = None

    @property
    def query(self) -> Query:
        selectors = {"fieldSelector": self.fields, "labelSelector": self.labels}
        return {name: text for name, text in selectors.items() if text}


EVERYTHING: Final = Selection()


def on_node(name: str) -> Selection:
    """The pods bound to a node."""
    return Selection(fields=f"spec.nodeName={name}")


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, with all that an error needs to name the missing right."""

    verb: str
    path: str
    query: Query = {}
    group: str = ""
    resource: str = ""
    """Empty where the path is no resource, such as /version."""
    namespace: str | None = None
    name: str | None = None

    @property
    def target(self) -> str:
        """Path and query, as in the request's first line."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        if not self.resource:
            return self.path
        what = f"{self.resource}/{self.name}" if self.name else self.resource
        return f"{what} in {self.namespace}" if self.namespace else what


def get_request(resource: ApiResource[_T], name: str, namespace: str | None = None) -> ApiRequest:
    """Read one object."""
    return _request("get", resource, namespace, name)


def list_request(resource: ApiResource[_T], selection: Selection, **query: str) -> ApiRequest:
    """List objects, or a page of them."""
    return _request("list", resource, selection.namespace, None, selection.query | query)


def watch_request(resource: ApiResource[_T], selection: Selection, **query: str) -> ApiRequest:
    """Watch objects."""
    return _request(
        "watch", resource, selection.namespace, None, selection.query | {"watch": "1"} | query
    )


def _request(
    verb: str,
    resource: ApiResource[_T],
    namespace: str | None,
    name: str | None,
    query: Query | None = None,
) -> ApiRequest:
    return ApiRequest(
        verb=verb,
        path=resource.path(namespace, name),
        query=query or {},
        group=resource.group,
        resource=resource.plural,
        namespace=namespace if resource.is_namespaced else None,
        name=name,
    )
