"""The read endpoints of a cluster's agents, as a caller reaches them: by port-forward or directly.

The agent's certificate is verified before the caller's token is sent, against an authority out of a
file or of a ConfigMap that the API server has, and for one name that all agents share.
"""

import io
import ssl
from functools import cached_property
from http.client import HTTPException, HTTPResponse
from typing import Final

import msgspec

from memqos.errors import InputError, Unreachable
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.pager import get_object, list_objects
from memqos.host.apiserver.port_forward import PortForward
from memqos.host.apiserver.resources import POD_RESOURCE, ApiResource, Selection
from memqos.host.apiserver.responses import tls_context
from memqos.host.credential_files import describe_tls_error, read_token
from memqos.host.tls_exchange import ByteStream, DirectStream, exchange
from memqos.kube.pod import ObjectMeta, Pod
from memqos.record.transfer import SentRecords, decode_transfer

AGENT_NAMESPACE: Final = "memqos-system"
AGENT_PORT: Final = 9178
CA_CONFIG_MAP: Final = "memqos-agent-ca"
CA_KEY: Final = "ca.crt"
_LABELS: Final = "app.kubernetes.io/name=memqos,app.kubernetes.io/component=agent"
_SECONDS: Final = 15.0
_SHOWN: Final = 200


class AgentAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How a caller wants agents to be reached."""

    namespace: str = AGENT_NAMESPACE
    address: str | None = None
    """HOST:PORT of one agent; by default a port-forward to the agent of a node."""
    ca_file: str | None = None
    token_file: str | None = None


class AgentRefusal(Unreachable):
    """An agent answered, but not with what was requested."""

    def __init__(self, what: str, status: int, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.status = status


class _ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class AgentEndpoints:
    """The agents of one cluster."""

    def __init__(self, server: ApiClient, access: AgentAccess | None = None) -> None:
        self._server = server
        self._access = access or AgentAccess()
        self._agents: dict[str, Pod] | None = None
        """Those that were listed last: an agent that was replaced runs in another pod."""

    def list_agents(self) -> dict[str, Pod]:
        """Node → its agent's pod, of those that run."""
        selection = Selection(self._access.namespace, fields="status.phase=Running", labels=_LABELS)
        found = list_objects(self._server, POD_RESOURCE, selection).items
        self._agents = {pod.spec.node_name: pod for pod in found if pod.spec.node_name}
        if self._access.address is not None and len(self._agents) > 1:
            raise InputError(
                f"{self._access.address} is one agent, and {len(self._agents)} run in namespace "
                f"{self._access.namespace}",
                hint="leave --agent-address out to read all of them",
            )
        return self._agents

    def get_pod_records(self, node: str, namespace: str, pod: str) -> SentRecords:
        """What the agent of a node has recorded of a pod."""
        data = self.get(node, f"/v1/pods/{namespace}/{pod}/records")
        return decode_transfer(data, f"the agent of {node}")

    def get_records(self, node: str, since: int) -> SentRecords:
        """What it has recorded of all pods since a time, in milliseconds since 1970."""
        return decode_transfer(self.get(node, f"/v1/records?since={since}"), f"the agent of {node}")

    def get_state(self, node: str) -> bytes:
        """The state of an agent, as its socket on the node has it."""
        return self.get(node, "/v1/state")

    def get(self, node: str, target: str) -> bytes:
        """The answer of the agent of a node."""
        where = f"the agent of {node}"
        # First what may be missing: without it nothing is sent to anybody.
        token, context = self._token, self._tls_context
        stream = self._connect(node)
        try:
            head = f"GET {target} HTTP/1.1\r\nHost: {self._server_name}\r\n"
            fields = f"Authorization: Bearer {token}\r\nConnection: close\r\n\r\n"
            answer = exchange(stream, context, self._server_name, (head + fields).encode())
        except ssl.SSLCertVerificationError as error:
            self.__dict__.pop("_tls_context", None)  # the CA may have been replaced
            raise Unreachable(
                f"{where}: its certificate is not trusted ({error.verify_message}), so no token "
                "was sent",
                hint=f"the CA of --agent-ca or ConfigMap {CA_CONFIG_MAP} must have signed a "
                f"certificate for {self._server_name}",
            ) from None
        except ssl.SSLError as error:
            reason = describe_tls_error(error)
            raise Unreachable(f"{where}: no secure connection ({reason})") from None
        finally:
            stream.close()
        return _body_of(answer, where)

    @property
    def _server_name(self) -> str:
        """The name in the certificate of every agent."""
        return f"memqos-agent.{self._access.namespace}.svc"

    def _connect(self, node: str) -> ByteStream:
        if self._access.address is not None:
            return DirectStream(self._access.address, _SECONDS)
        agent = (self.list_agents() if self._agents is None else self._agents).get(node)
        if agent is None:
            raise Unreachable(
                f"no agent of memqos runs on node {node} in namespace {self._access.namespace}",
                hint="give another one with --agent-namespace",
            )
        return PortForward(
            self._server,
            self._access.namespace,
            agent.metadata.name or "",
            AGENT_PORT,
            _SECONDS,
        )

    @property
    def _token(self) -> str:
        file = self._access.token_file
        if file is None:
            token = self._server.credentials.bearer_token()
            if token is None:
                raise InputError(
                    "the user of this context has no token, and an agent accepts only tokens, "
                    "not client certificates",
                    file=self._server.access.origin,
                    hint="kubectl create token NAME --audience memqos.io/agent > FILE, for a "
                    "service account that may get the pod; then --agent-token FILE",
                )
            return token
        return read_token(file)

    @cached_property
    def _tls_context(self) -> ssl.SSLContext:
        file, data = self._access.ca_file, None
        if file is None:
            resource = ApiResource("", "v1", "configmaps", _ConfigMap)
            found = get_object(self._server, resource, CA_CONFIG_MAP, self._access.namespace)
            data = None if found is None else (found.data or {}).get(CA_KEY)
            if not data:
                raise Unreachable(
                    f"there is no {CA_KEY} in ConfigMap {CA_CONFIG_MAP} of namespace "
                    f"{self._access.namespace}: agents have no read endpoint, or their CA is "
                    f"unknown",
                    hint="give the CA of the agents with --agent-ca",
                )
        try:
            return tls_context(cafile=file, cadata=data)
        except (OSError, ValueError) as error:
            raise InputError(
                f"no certificate could be read ({describe_tls_error(error)})",
                file=file or f"ConfigMap {CA_CONFIG_MAP}",
                hint="it must be in PEM",
            ) from None


class _Bytes:
    """An answer in the place of a socket, for `HTTPResponse`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _body_of(answer: bytes, where: str) -> bytes:
    response = HTTPResponse(_Bytes(answer), method="GET")  # type: ignore[arg-type] # only reads it
    try:
        response.begin()
        body = response.read()
    except HTTPException as error:
        raise Unreachable(f"{where}: not a response of an agent ({type(error).__name__})") from None
    if response.status != 200:
        reason = body[:_SHOWN].decode("ascii", "replace").strip()
        raise AgentRefusal(f"{where} answers {response.status}: {reason}", response.status)
    return body
