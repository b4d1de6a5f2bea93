"""The API server is asked as a kubeconfig says, and every refusal says what to do."""

import gzip
import json
import socket
import ssl
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.eventually import PATIENCE, within_patience
from tests.fakes.apiserver import FakeApiServer, pod
from tests.fakes.client import client, refusal, with_openssl
from tests.fakes.kubelet import TlsFiles

from memqos.errors import Unreachable
from memqos.host.apiserver import pager, responses
from memqos.host.apiserver.api_errors import ApiError
from memqos.host.apiserver.client import TRIES, ApiClient
from memqos.host.apiserver.kubeconfig import Cluster, ClusterAccess, User
from memqos.host.apiserver.pager import get_object, list_objects, list_raw_pages, raw_pages
from memqos.host.apiserver.resources import (
    EVERYTHING,
    LIMIT_RANGE_RESOURCE,
    NODE_RESOURCE,
    POD_RESOURCE,
    QUOTA_RESOURCE,
    Selection,
    list_request,
)


class TestLists:
    def test_all_kinds_are_decoded_into_what_memqos_computes_with(
        self, server: FakeApiServer
    ) -> None:
        meta = {"metadata": {"name": "x", "namespace": "shop"}}
        server.pods.put(pod("web-0"))
        server.stores["nodes"].put({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": 2}}})
        server.stores["limitranges"].put({**meta, "spec": {"limits": [{"type": "Pod"}]}})
        server.stores["resourcequotas"].put({**meta, "spec": {"hard": {"pods": "3"}}})
        api = client(server)
        (web,) = list_objects(api, POD_RESOURCE).items
        assert web.spec.node_name == "node-1"
        (node,) = list_objects(api, NODE_RESOURCE).items
        assert node.status.capacity == {"cpu": 2}
        in_shop = Selection(namespace="shop")
        (limits,) = list_objects(api, LIMIT_RANGE_RESOURCE, in_shop).items
        assert limits.spec.limits is not None
        assert limits.spec.limits[0].type == "Pod"
        (quota,) = list_objects(api, QUOTA_RESOURCE, in_shop).items
        assert quota.spec.hard == {"pods": "3"}
        assert [each.path for each in server.request_log][2:] == [
            "/api/v1/namespaces/shop/limitranges",
            "/api/v1/namespaces/shop/resourcequotas",
        ]

    def test_a_list_comes_in_pages_and_is_whole(self, server: FakeApiServer) -> None:
        for number in range(25):
            server.pods.put(pod(f"p{number:02}"))
        answer = list_objects(client(server), POD_RESOURCE, page=10)
        assert [each.metadata.name for each in answer.items] == [f"p{i:02}" for i in range(25)]
        assert answer.version == "25"
        assert [each.query["limit"] for each in server.request_log] == ["10"] * 3

    def test_pages_are_of_one_moment_whatever_happens_meanwhile(
        self, server: FakeApiServer
    ) -> None:
        for number in range(25):
            server.pods.put(pod(f"p{number:02}"))

        def creation() -> None:
            server.pods.put(pod(f"p{server.version:02}"))

        server.page_hook = creation
        answer = list_objects(client(server), POD_RESOURCE, page=10)
        assert (len(answer.items), answer.version) == (25, "25")

    def test_a_page_that_comes_too_late_makes_the_list_begin_again(
        self, server: FakeApiServer
    ) -> None:
        for number in range(25):
            server.pods.put(pod(f"p{number:02}"))

        def compaction() -> None:
            server.pods.put(pod("new"))
            server.pods.forget()

        server.page_hook = compaction
        answer = list_objects(client(server), POD_RESOURCE, page=10)
        assert (len(answer.items), answer.version) == (26, "26")
        assert "limit" not in server.request_log[-1].query

    def test_selectors_are_the_servers_business(self, server: FakeApiServer) -> None:
        for name, app in [("a", "web"), ("b", "db")]:
            labels = {"name": name, "namespace": "default", "labels": {"app": app}}
            server.pods.put(pod(name) | {"metadata": labels})
        answer = list_objects(client(server), POD_RESOURCE, Selection("default", labels="app=db"))
        assert [each.metadata.name for each in answer.items] == ["b"]

    def test_compressed_answers_are_asked_for_and_read(self, server: FakeApiServer) -> None:
        server.compresses = True
        server.pods.put(pod("a"))
        assert len(list_objects(client(server), POD_RESOURCE).items) == 1
        assert len(list_objects(client(server, disable_compression=True), POD_RESOURCE).items) == 1
        assert server.request_log[0].headers.get("Accept-Encoding") == "gzip"

    def test_bytes_are_handed_over_as_they_came(self, server: FakeApiServer) -> None:
        server.pods.put(pod("a"))
        (page,) = list_raw_pages(client(server), POD_RESOURCE)
        assert json.loads(page)["kind"] == "PodList"

    def test_one_object_or_none(self, server: FakeApiServer) -> None:
        server.pods.put(pod("a"))
        assert get_object(client(server), POD_RESOURCE, "a", "default") is not None
        assert get_object(client(server), POD_RESOURCE, "b", "default") is None

    @pytest.mark.parametrize("body", [b"<html>", b"", b'{"items": 5}', b"\xff"])
    def test_what_is_no_list_is_refused(self, server: FakeApiServer, body: bytes) -> None:
        server.answers["/api/v1/pods"] = (200, {}, body)
        assert "is this the address of an API server?" in refusal(
            lambda: list_objects(client(server), POD_RESOURCE)
        )


@contextmanager
def dripping(head: bytes, drop: bytes, identity: TlsFiles | None = None) -> Iterator[str]:
    """A server that answers with a head, and then so many bytes every now and then."""
    done = threading.Event()

    def answer(listening: socket.socket) -> None:
        with suppress(OSError):
            connected, _ = listening.accept()
            if identity is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(identity.cert, identity.key)
                connected = context.wrap_socket(connected, server_side=True)
            with connected:
                connected.recv(1 << 16)
                connected.sendall(head)
                while not done.wait(0.01):
                    connected.sendall(drop)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, args=(listening,))
        thread.start()
        scheme = "http" if identity is None else "https"
        try:
            with within_patience():
                yield f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


class TestBounds:
    """An API server, or whoever answers in its place, does not fill memory or keep anybody."""

    @pytest.mark.parametrize("compressed", [False, True])
    def test_an_answer_is_read_no_further_than_it_may_be_large(
        self, server: FakeApiServer, compressed: bool
    ) -> None:
        body = b" " * (32 << 20)
        answer = ({"Content-Encoding": "gzip"}, gzip.compress(body)) if compressed else ({}, body)
        server.answers["/api/v1/pods"] = (200, *answer)
        api = client(server)
        tracemalloc.start()
        try:
            held, _ = tracemalloc.get_traced_memory()
            text = refusal(lambda: api.get(list_request(POD_RESOURCE, EVERYTHING), largest=1 << 20))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert "the API server's answer is larger than 1Mi" in text
        assert peak - held < (16 << 20)

    def test_so_is_one_that_is_read_in_parts(
        self, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(responses, "LARGEST_ANSWER", 1 << 20)
        server.answers["/api/v1/pods"] = (200, {}, b" " * (2 << 20))

        def read() -> None:
            with client(server).stream(list_request(POD_RESOURCE, EVERYTHING), 5) as stream:
                while stream.read(1 << 16):
                    pass

        assert "larger than 1Mi" in refusal(read)

    def test_and_the_line_of_a_watch(
        self, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(responses, "_LONGEST_LINE", 1 << 20)
        server.answers["/api/v1/pods"] = (200, {}, b" " * (2 << 20))

        def read() -> None:
            with client(server).stream(list_request(POD_RESOURCE, EVERYTHING), 5) as stream:
                list(stream.lines())

        assert "an event of a watch is larger than 1Mi" in refusal(read)

    def test_a_list_whose_last_page_never_comes_is_given_up(
        self, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pager, "MOST_PAGES", 7)
        body = json.dumps({"metadata": {"continue": "again"}, "items": []}).encode()
        server.answers["/api/v1/pods"] = (200, {}, body)
        asks: list[Callable[[], object]] = [
            lambda: list_objects(client(server), POD_RESOURCE),
            lambda: list_raw_pages(client(server), POD_RESOURCE),
            lambda: list(raw_pages(client(server), POD_RESOURCE, EVERYTHING)),
        ]
        for ask in asks:
            assert "the list of pods does not end within 7 pages" in refusal(ask)
        assert len(server.request_log) == 3 * 7

    def test_pages_that_are_kept_are_bounded_together(self, server: FakeApiServer) -> None:
        for number in range(25):
            server.pods.put(pod(f"p{number:02}", filler="x" * (100 << 10)))
        text = refusal(lambda: list_objects(client(server), POD_RESOURCE, page=5, largest=1 << 20))
        assert "the list of pods does not end within 1Mi" in text
        assert len(list_objects(client(server), POD_RESOURCE, page=5, largest=4 << 20).items) == 25

    @pytest.mark.parametrize(
        ("head", "drop"),
        [
            (b"", b"H"),
            (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b" "),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
                b"\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03",
                b"x",  # of a file's name, which may be of any length
            ),
        ],
    )
    @pytest.mark.parametrize("is_streamed", [False, True])
    def test_an_answer_that_drips_has_an_end(
        self, head: bytes, drop: bytes, is_streamed: bool
    ) -> None:
        with dripping(head, drop) as url:
            api = ApiClient(
                ClusterAccess(Cluster(server=url), User(), "a test"),
                read_timeout=PATIENCE,
                longest=0.3,
            )

            def read() -> None:
                with api.stream(list_request(POD_RESOURCE, EVERYTHING), PATIENCE) as stream:
                    while stream.read(1 << 16):
                        pass

            ask = read if is_streamed else lambda: list_objects(api, POD_RESOURCE)
            assert "the answer does not end within 0.3 s" in refusal(ask)

    def test_so_has_a_refusal_that_drips(self) -> None:
        with dripping(b"HTTP/1.1 400 No\r\nContent-Length: 99999999\r\n\r\n", b"x") as url:
            api = ApiClient(
                ClusterAccess(Cluster(server=url), User(), "a test"),
                read_timeout=PATIENCE,
                longest=0.3,
            )
            text = refusal(lambda: list_objects(api, POD_RESOURCE))
        # Where even the head took so long, it is none.
        assert "it answered 400 to list pods – " in text or "does not end within" in text

    @with_openssl
    def test_so_has_one_over_tls(self, identity: TlsFiles) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n"
        with dripping(head, b" ", identity) as url:
            cluster = Cluster(server=url, certificate_authority=str(identity.cert))
            api = ApiClient(
                ClusterAccess(cluster, User(), "a test"), read_timeout=PATIENCE, longest=0.3
            )
            assert "the answer does not end within 0.3 s" in refusal(
                lambda: list_objects(api, POD_RESOURCE)
            )

    def test_the_time_of_one_answer_is_not_that_of_the_next(self, server: FakeApiServer) -> None:
        api = ApiClient(
            ClusterAccess(Cluster(server=server.url), User(), "a test"), longest=PATIENCE
        )
        request = list_request(POD_RESOURCE, EVERYTHING)
        with pytest.raises(Unreachable), api.stream(request, PATIENCE, longest=0.0):
            pass
        assert list_objects(api, POD_RESOURCE).items == []

    def test_pages_have_an_end_in_time_together(
        self, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pager, "LIST_SECONDS", -1.0)
        server.pods.put(pod("a"))
        assert len(list_objects(client(server), POD_RESOURCE, page=1).items) == 1
        server.pods.put(pod("b"))
        text = refusal(lambda: list_objects(client(server), POD_RESOURCE, page=1))
        assert "the list of pods does not end within -1 s" in text

    def test_a_refusal_without_end_keeps_nobody_from_asking_again(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def refuse_for_ever() -> None:
                for _ in range(2):
                    connected, _ = listening.accept()
                    with connected, suppress(OSError):
                        connected.sendall(b"HTTP/1.1 401 No\r\nContent-Length: 99999999999\r\n\r\n")
                        while True:
                            connected.sendall(b" " * (1 << 16))

            thread = threading.Thread(target=refuse_for_ever)
            thread.start()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            api = ApiClient(
                ClusterAccess(Cluster(server=url), User(token_file="/none"), "a test"),
                read_timeout=5,
            )
            assert "it rejects the credentials (401)" in refusal(
                lambda: list_objects(api, POD_RESOURCE)
            )
            thread.join()


class TestRefusals:
    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_a_busy_server_is_asked_again(self, server: FakeApiServer, status: int) -> None:
        waits: list[float] = []
        server.refusals = [(status, {"Retry-After": "3"}), (status, {})]
        api = ApiClient(
            ClusterAccess(Cluster(server=server.url), User(), "a test"), sleep=waits.append
        )
        assert list_objects(api, POD_RESOURCE).items == []
        assert waits[0] >= 3
        assert len(waits) == 2

    def test_but_not_sooner_than_it_says_and_nobody_waits_that_long(
        self, server: FakeApiServer
    ) -> None:
        server.refusals = [(429, {"Retry-After": "60"})]
        with pytest.raises(ApiError) as caught:
            list_objects(client(server), POD_RESOURCE)
        assert (caught.value.retry_after, len(server.request_log)) == (60, 1)

    @pytest.mark.parametrize("message", ["1e300", "inf", "nan", "-5", "1_0", "9" * 400, "soon", ""])
    def test_a_time_that_is_none_is_not_waited_for(
        self, server: FakeApiServer, message: str
    ) -> None:
        server.refusals = [(429, {"Retry-After": message})]
        assert list_objects(client(server), POD_RESOURCE).items == []

    def test_a_status_may_name_the_time_too(self, server: FakeApiServer) -> None:
        details = {"retryAfterSeconds": 10**400}
        body = json.dumps({"kind": "Status", "code": 429, "details": details}).encode()
        server.answers["/api/v1/pods"] = (429, {}, body)
        assert "too busy" in refusal(lambda: list_objects(client(server), POD_RESOURCE))

    def test_but_not_for_ever(self, server: FakeApiServer) -> None:
        server.refusals = [(503, {})] * 99
        with pytest.raises(ApiError) as caught:
            list_objects(client(server), POD_RESOURCE)
        assert (caught.value.status, len(server.request_log)) == (503, TRIES)

    def test_a_missing_right_comes_with_the_rule_that_grants_it(
        self, server: FakeApiServer
    ) -> None:
        message = 'pods is forbidden: User "jane" cannot list resource "pods" in API group ""'
        body = json.dumps({"kind": "Status", "message": message, "code": 403}).encode()
        server.answers["/api/v1/namespaces/shop/pods"] = (403, {}, body)
        text = refusal(lambda: list_objects(client(server), POD_RESOURCE, Selection("shop")))
        assert "jane may not list pods in namespace shop (403)" in text
        assert text.endswith(
            "a Role with this rule grants it:\n"
            '    - apiGroups: [""]\n'
            '      resources: ["pods"]\n'
            "      verbs: [get, list, watch]"
        )
        server.answers["/api/v1/nodes"] = (403, {}, b"Forbidden")
        text = refusal(lambda: list_objects(client(server), NODE_RESOURCE))
        assert "the user may not list nodes in the whole cluster (403)" in text
        assert "a ClusterRole with this rule" in text

    def test_nobody_there(self) -> None:
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
            api = ApiClient(ClusterAccess(Cluster(server=url), User(), "context dev of /k"))
            text = refusal(lambda: list_objects(api, POD_RESOURCE))
        assert text == (
            f"{url} (context dev of /k): nothing listens there"
            " – is the cluster running? Is it the right --context?"
        )

    def test_a_name_nobody_knows(self) -> None:
        api = ApiClient(ClusterAccess(Cluster(server="https://nowhere.invalid"), User(), "a test"))
        assert "host is unknown" in refusal(lambda: list_objects(api, POD_RESOURCE))

    def test_silence_has_an_end(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            api = ApiClient(ClusterAccess(Cluster(server=url), User(), "a test"), read_timeout=0.2)
            assert "no answer within 0.2 s" in refusal(lambda: list_objects(api, POD_RESOURCE))

    @pytest.mark.parametrize(
        "raw", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"]
    )
    def test_an_answer_that_is_none(self, raw: bytes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def answer() -> None:
                connected, _ = listening.accept()
                with connected:
                    connected.recv(4096)
                    connected.sendall(raw)

            thread = threading.Thread(target=answer)
            thread.start()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            api = ApiClient(
                ClusterAccess(Cluster(server=url), User(), "a test"), read_timeout=PATIENCE
            )
            with pytest.raises(Unreachable, match="was cut off"):
                list_objects(api, POD_RESOURCE)
            thread.join()

    def test_an_address_that_is_none(self) -> None:
        text = refusal(
            lambda: ApiClient(ClusterAccess(Cluster(server="10.0.0.1:6443"), User(), "k"))
        )
        assert "starts with https://" in text


def test_commands_without_a_cluster_do_not_pay_for_one() -> None:
    code = (
        "import sys, memqos.cli.explain, memqos.cli.fit, memqos.cli.admit, memqos.cli.plan\n"
        "import memqos.cli.rank_eviction, memqos.cli.rank_oom\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"urllib3", "memqos.host.apiserver.client"} & set(done.stdout.split())
