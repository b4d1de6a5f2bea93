"""The agent's read endpoint: real TLS on loopback, and an API server that reviews callers."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.eventually import PATIENCE, eventually
from tests.fakes import apiserver, recording
from tests.fakes.agent import SteppedNode, a_pod, container_paths, view_of
from tests.fakes.apiserver import FakeApiServer, fake_api_server
from tests.fakes.client import with_openssl
from tests.fakes.kubeconfig import lead_to
from tests.fakes.kubelet import TlsFiles, self_signed
from tests.fakes.read_endpoint import (
    SERVER_NAME,
    ServedEndpoint,
    put_agent,
    serve_read_endpoint,
)

from memqos.errors import InputError, Unreachable
from memqos.host.agent_endpoint import AgentAccess, AgentEndpoints, AgentRefusal
from memqos.host.apiserver.access_reviews import REMEMBER_SECONDS, AccessReviewer, ReadAccess
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.kubeconfig import cluster_access
from memqos.host.apiserver.port_forward import PortForward
from memqos.record.format import KillRecord, PressureRecord
from memqos.record.transfer import decode_transfer

pytestmark = with_openssl

JANE = "jane-s-token-0123456789"
TIM = "tim-s-token-0123456789"
BOUND = "token-for-agents-alone"
RECORDS = "/v1/pods/shop/api-1/records"


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return self_signed(tmp_path_factory.mktemp("pki"), "agent", f"DNS:{SERVER_NAME}")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with fake_api_server() as served:
        lead_to(served.url, tmp_path, monkeypatch)
        served.callers = {
            JANE: {"username": "jane", "groups": ["shop-devs"], "extra": {"k": ["v"]}},
            TIM: {"username": "tim"},
            BOUND: {"username": "jane", "audiences": ["memqos.io/agent"]},
        }
        served.rights = {("jane", "get", "shop", "api-1"), ("tim", "list", "", "")}
        yield served


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memqos.agent.endpoint.REVIEW_SECONDS", 0.3)


class Agent(NamedTuple):
    served: ServedEndpoint
    identity: TlsFiles
    node: SteppedNode

    def ask(
        self, path: str, token: str | None = JANE, method: str = "GET", **headers: str
    ) -> tuple[int, bytes]:
        trust = ssl.create_default_context(cafile=str(self.identity.cert))
        trust.check_hostname = False
        connection = HTTPSConnection("127.0.0.1", self.served.port, context=trust, timeout=PATIENCE)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def agent(tmp_path: Path, identity: TlsFiles, server: FakeApiServer) -> Iterator[Agent]:
    recording.write_example(str(tmp_path / "records"))
    folder = tmp_path / "node"
    folder.mkdir()
    node = SteppedNode(folder)
    pod = a_pod("u1", namespace="shop", containers=("api",))
    pod["metadata"]["name"] = "api-1"
    node.run_pod(pod)
    node.run_pod(a_pod("other", namespace="bank"))
    (path,) = container_paths(pod)
    node.kernel.set(path, "memory.current", "1000")
    node.kernel.set(path, "memory.stat", "anon 600\nfile 300\nkernel 100\ninactive_file 200\n")
    node.settle()
    view = view_of(node)
    try:
        with serve_read_endpoint(
            lambda: view, node.kernel, identity, str(tmp_path / "records")
        ) as served:
            yield Agent(served, identity, node)
    finally:
        node.crash()


class TestWhoMayRead:
    def test_a_pod_s_records_are_for_those_who_may_get_it(self, agent: Agent) -> None:
        status, body = agent.ask(RECORDS)
        assert status == 200
        sent = decode_transfer(body, "agent")
        assert {each.who.pod for each in sent.recordings} == {"api-1"}
        assert any(isinstance(each, KillRecord) for each in sent.recordings[0].records)
        assert sent.files["shop/api-1"]["api"]["memory.current"] == "1000"
        assert set(sent.files) == {"shop/api-1"}

    def test_of_the_node_a_pod_s_reader_learns_its_pressure_alone(self, agent: Agent) -> None:
        sent = decode_transfer(agent.ask(RECORDS)[1], "agent")
        assert sent.pressure
        assert all(isinstance(each, PressureRecord) for each in sent.pressure)

    @pytest.mark.parametrize("pod", ["shop/db-0", "bank/other", "shop/none", "bank/api-1"])
    def test_another_s_pod_is_refused_whether_or_not_it_is_there(
        self, agent: Agent, pod: str
    ) -> None:
        status, body = agent.ask(f"/v1/pods/{pod}/records")
        assert status == 403
        namespace, name = pod.split("/")
        what = f"this takes the right to get pod {name} in namespace {namespace}\n"
        assert body.decode() == what

    def test_what_concerns_the_node_takes_the_right_to_list_all_pods(self, agent: Agent) -> None:
        for path in ("/v1/state", "/v1/records", "/v1/records?since=0"):
            assert agent.ask(path, JANE)[0] == 403
            assert agent.ask(path, TIM)[0] == 200
        assert agent.ask(RECORDS, TIM)[0] == 403

    def test_the_state_is_that_of_the_socket(self, agent: Agent) -> None:
        state = json.loads(agent.ask("/v1/state", TIM)[1])
        assert {each["pod"] for each in state["pods"]} == {"shop/api-1", "bank/other"}

    def test_records_since_a_time_are_of_all_pods(self, agent: Agent) -> None:
        late = recording.TEN + 18 * 60_000
        every = decode_transfer(agent.ask("/v1/records?since=0", TIM)[1], "agent")
        some = decode_transfer(agent.ask(f"/v1/records?since={late}", TIM)[1], "agent")
        assert {each.who.pod for each in every.recordings} == {"api-1", "db-0", "report-28"}
        assert all(record.at >= late for each in some.recordings for record in each.records)
        assert set(every.files) == {"shop/api-1", "bank/other"}

    def test_a_token_for_agents_alone_is_taken(self, agent: Agent) -> None:
        assert agent.ask(RECORDS, BOUND)[0] == 200

    def test_a_pod_that_nobody_has_recorded_is_not_found(
        self, agent: Agent, server: FakeApiServer
    ) -> None:
        server.rights.add(("jane", "get", "shop", "new"))
        assert agent.ask("/v1/pods/shop/new/records")[0] == 404

    def test_all_that_is_known_of_the_caller_is_reviewed(
        self, agent: Agent, server: FakeApiServer
    ) -> None:
        agent.ask(RECORDS)
        (review,) = [each for each in server.request_log if "subjectaccess" in each.path]
        spec = json.loads(review.body)["spec"]
        assert (spec["user"], spec["groups"], spec["extra"]) == (
            "jane",
            ["shop-devs"],
            {"k": ["v"]},
        )
        assert spec["resourceAttributes"] == {
            "verb": "get",
            "group": "",
            "version": "v1",
            "resource": "pods",
            "namespace": "shop",
            "name": "api-1",
        }


class TestHostileCallers:
    @pytest.mark.parametrize("token", [None, "made-up", "a b", "x" * 9000])
    def test_without_a_valid_token_nothing_is_read(self, agent: Agent, token: str | None) -> None:
        assert agent.ask(RECORDS, token)[0] == 401

    def test_other_schemes_are_no_token(self, agent: Agent, server: FakeApiServer) -> None:
        assert agent.ask(RECORDS, None, Authorization=f"Basic {JANE}")[0] == 401
        assert agent.ask(RECORDS, None, Authorization=JANE)[0] == 401
        assert not [each for each in server.request_log if "tokenreviews" in each.path]

    @pytest.mark.parametrize(
        "path",
        [
            "/",
            "/state",
            "/metrics",
            "/v1/pods/shop/api-1",
            "/v1/pods/shop/api-1/records/",
            "/v1/pods/shop/api-1/records?since=0",
            "/v1/pods/../shop/api-1/records",
            "/v1/pods/shop/../../etc/passwd/records",
            "/v1/pods/shop/..%2f..%2fetc/records",
            "/v1/pods/shop/api%2d1/records",
            "/v1/pods/shop//records",
            "/v1/pods/Shop/api-1/records",
            "/v1/pods/shop/-api/records",
            "/v1/pods/shop/a_b/records",
            "/v1/pods/shop/api-1\\/records",
            f"/v1/pods/{'n' * 64}/api-1/records",
            f"/v1/pods/shop/{'n' * 254}/records",
            f"/v1/pods/shop/{'a.' * 2000}a/records",
            "/v1/records?since=-1",
            "/v1/records?since=0&since=1",
            f"/v1/records?since={'9' * 16}",
        ],
    )
    def test_a_path_of_any_other_form_is_nothing(
        self, agent: Agent, server: FakeApiServer, path: str
    ) -> None:
        assert agent.ask(path)[0] == 404
        assert server.request_log == []

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    def test_nothing_but_reading_is_answered(self, agent: Agent, method: str) -> None:
        assert agent.ask(RECORDS, method=method)[0] == 405

    def test_a_huge_header_is_refused(self, agent: Agent) -> None:
        assert agent.ask(RECORDS, "x" * (20 << 10))[0] == 431

    def test_a_slow_caller_holds_nobody_up(self, agent: Agent) -> None:
        slow = [socket.create_connection(("127.0.0.1", agent.served.port)) for _ in range(40)]
        try:
            for each in slow:
                each.sendall(b"\x16\x03\x01")
            assert agent.ask(RECORDS)[0] == 200
        finally:
            for each in slow:
                each.close()

    def test_plain_http_gets_no_answer(self, agent: Agent) -> None:
        with socket.create_connection(("127.0.0.1", agent.served.port)) as plain:
            plain.sendall(f"GET {RECORDS} HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n".encode())
            plain.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP/" not in plain.recv(100)

    def test_a_slow_api_server_is_not_waited_for_without_end(
        self, impatient: None, agent: Agent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, released = "/apis/authorization.k8s.io/v1/subjectaccessreviews", threading.Event()
        review = apiserver._REVIEWS[path]

        def review_late(fake: FakeApiServer, spec: Any) -> Any:
            released.wait(PATIENCE)
            return review(fake, spec)

        monkeypatch.setitem(apiserver._REVIEWS, path, review_late)
        try:
            assert agent.ask(RECORDS)[0] == 503
        finally:
            released.set()
        assert agent.ask(RECORDS)[0] == 200

    def test_made_up_tokens_do_not_flood_the_api_server(
        self, agent: Agent, server: FakeApiServer
    ) -> None:
        statuses = {agent.ask(RECORDS, f"made-up-{number}")[0] for number in range(60)}
        assert statuses == {401, 429}
        assert len(server.request_log) < 120


class TestWhatIsLogged:
    def test_no_token_is_in_the_log_nor_in_an_answer(
        self, agent: Agent, server: FakeApiServer
    ) -> None:
        answers = [agent.ask(RECORDS, token)[1] for token in (JANE, TIM, "made-up-secret")]
        server.forbidden = {("POST", "tokenreviews")}
        status, body = agent.ask("/v1/pods/shop/api-1/records", "another-secret")
        assert status == 503
        logged = agent.served.logged.getvalue()
        assert "callers of the read endpoint cannot be checked" in logged
        assert "tokenreviews" in logged
        for secret in (JANE, TIM, "made-up-secret", "another-secret"):
            assert secret not in logged
            assert all(secret.encode() not in each for each in (*answers, body))

    def test_the_same_fault_is_logged_once(self, agent: Agent, server: FakeApiServer) -> None:
        server.forbidden = {("POST", "tokenreviews")}
        for number in range(3):
            assert agent.ask(RECORDS, f"t{number}")[0] == 503
        assert agent.served.logged.getvalue().count("cannot be checked") == 1


class TestReviews:
    def test_are_remembered_for_some_seconds(self, server: FakeApiServer) -> None:
        now = 0.0
        reviewer = AccessReviewer(ApiClient(cluster_access()), clock=lambda: now)
        access = ReadAccess(verb="get", namespace="shop", name="api-1")
        for _ in range(5):
            caller = reviewer.authenticate(JANE)
            assert caller is not None
            assert reviewer.allows(caller, access)
        assert len(server.request_log) == 2
        del server.callers[JANE]
        now = REMEMBER_SECONDS
        assert reviewer.authenticate(JANE) is None

    def test_an_audience_that_the_server_does_not_confirm_counts_for_nothing(
        self, server: FakeApiServer
    ) -> None:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        answer = {"status": {"authenticated": True, "user": {"username": "x"}, "audiences": []}}
        plain = {"status": {"authenticated": False}}
        reviewer = AccessReviewer(ApiClient(cluster_access()))
        server.answers[path] = 201, {}, json.dumps(plain).encode()
        assert reviewer.authenticate("a") is None
        server.answers[path] = 201, {}, json.dumps(answer).encode()
        assert reviewer._review_token("b", ("memqos.io/agent",)) is None


def endpoints(server: FakeApiServer, tmp_path: Path, **access: Any) -> AgentEndpoints:
    token = tmp_path / "token"
    token.write_text(JANE)
    given = {"token_file": str(token), **access}
    return AgentEndpoints(ApiClient(cluster_access()), AgentAccess(**given))


class TestTheClient:
    def test_reaches_the_agent_of_a_node_by_port_forward(
        self, agent: Agent, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_agent(server, agent.served, agent.identity)
        sent = endpoints(server, tmp_path).get_pod_records("node-1", "shop", "api-1")
        assert {each.who.container for each in sent.recordings} == {"api"}
        assert all(JANE not in str(each.headers) for each in server.request_log)

    def test_a_closed_port_forward_is_garbage_collected_in_silence(
        self, agent: Agent, server: FakeApiServer
    ) -> None:
        put_agent(server, agent.served, agent.identity)
        forward = PortForward(
            ApiClient(cluster_access()), "memqos-system", "memqos-agent-x", 9178, PATIENCE
        )
        forward.close()
        # As Python does then; what this raises, Python 3.13 prints.
        forward._response.close()

    def test_reaches_an_agent_directly(
        self, agent: Agent, server: FakeApiServer, tmp_path: Path
    ) -> None:
        address = f"127.0.0.1:{agent.served.port}"
        ca = str(agent.identity.cert)
        found = endpoints(server, tmp_path, address=address, ca_file=ca)
        assert found.get_pod_records("node-1", "shop", "api-1").recordings
        assert not [each for each in server.request_log if "portforward" in each.path]

    def test_says_what_the_agent_refuses(
        self, agent: Agent, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_agent(server, agent.served, agent.identity)
        with pytest.raises(AgentRefusal, match="answers 403: this takes the right to get") as error:
            endpoints(server, tmp_path).get_pod_records("node-1", "shop", "db-0")
        assert error.value.status == 403

    def test_sends_no_token_to_somebody_else(
        self, agent: Agent, server: FakeApiServer, tmp_path: Path
    ) -> None:
        other = self_signed(tmp_path, "other", f"DNS:{SERVER_NAME}")
        put_agent(server, agent.served, agent.identity, ca=other.cert.read_text())
        with pytest.raises(Unreachable, match=r"not trusted .*so no token was sent"):
            endpoints(server, tmp_path).get_pod_records("node-1", "shop", "api-1")
        assert not [each for each in server.request_log if "tokenreviews" in each.path]

    def test_sends_no_token_to_another_name(
        self, agent: Agent, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_agent(server, agent.served, agent.identity)
        found = endpoints(server, tmp_path, address=f"127.0.0.1:{agent.served.port}",
                          ca_file=str(agent.identity.cert), namespace="elsewhere")  # fmt: skip
        with pytest.raises(Unreachable, match="not trusted"):
            found.get_state("node-1")

    def test_without_an_authority_connects_to_nobody(
        self, agent: Agent, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_agent(server, agent.served, agent.identity, ca="")
        with pytest.raises(Unreachable, match=r"there is no ca.crt in ConfigMap"):
            endpoints(server, tmp_path).get_pod_records("node-1", "shop", "api-1")
        assert not [each for each in server.request_log if "portforward" in each.path]

    def test_a_caller_without_a_token_is_told_what_to_do(
        self, agent: Agent, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_agent(server, agent.served, agent.identity)
        with pytest.raises(InputError, match="has no token") as error:
            endpoints(server, tmp_path, token_file=None).get_state("node-1")
        assert "kubectl create token NAME --audience memqos.io/agent" in (error.value.hint or "")

    def test_a_node_without_an_agent_is_named(
        self, agent: Agent, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_agent(server, agent.served, agent.identity)
        with pytest.raises(Unreachable, match="no agent of memqos runs on node node-2"):
            endpoints(server, tmp_path).get_state("node-2")

    def test_a_missing_right_to_port_forward_is_named_with_its_rule(
        self, agent: Agent, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_agent(server, agent.served, agent.identity)
        server.forbidden = {("GET", "portforward")}
        with pytest.raises(Unreachable, match="may not create pods/portforward") as error:
            endpoints(server, tmp_path).get_state("node-1")
        assert 'resources: ["pods/portforward"]' in "".join(error.value.snippet)

    def test_an_agent_that_does_not_listen_is_an_error(
        self, agent: Agent, server: FakeApiServer, tmp_path: Path
    ) -> None:
        put_agent(server, agent.served, agent.identity)
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        server.forwards["memqos-agent-x", "9178"] = port
        with pytest.raises(Unreachable, match="cannot be reached: connection refused"):
            endpoints(server, tmp_path).get_state("node-1")


def test_a_new_certificate_is_taken_for_new_connections(
    tmp_path: Path, server: FakeApiServer
) -> None:
    first = self_signed(tmp_path, "first", f"DNS:{SERVER_NAME}")
    folder = tmp_path / "node"
    folder.mkdir()
    node = SteppedNode(folder)
    view = view_of(node)
    with serve_read_endpoint(lambda: view, node.kernel, first, str(tmp_path / "none")) as served:
        agent = Agent(served, first, node)
        assert agent.ask("/v1/state", TIM)[0] == 200
        second = self_signed(tmp_path, "second", f"DNS:{SERVER_NAME}")
        first.key.write_bytes(second.key.read_bytes())
        first.cert.write_bytes(second.cert.read_bytes())

        def takes_it() -> bool:
            return agent.ask("/v1/state", TIM)[0] == 200

        eventually("the new certificate is used", takes_it)
    assert "was read again" in served.logged.getvalue()
    node.crash()
