"""An API server on this machine's loopback: lists in pages, watches in chunks, and bad days.

It keeps objects as the real one does: every write has a version, a watch is served from what is
left of the history, and what is older than that is gone.
"""

import contextlib
import gzip
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec
from tests.eventually import eventually
from tests.fakes.kubelet import TlsFiles
from tests.fakes.port_forward import serve_port_forward

Object = dict[str, Any]
Key = tuple[str, str]
POLL = 0.02


class StoredVersion(NamedTuple):
    """One entry of the history."""

    version: int
    key: Key
    before: Object | None
    after: Object | None


class Store:
    """Objects of one kind, and what happened to them."""

    def __init__(self, server: "FakeApiServer", kind: str) -> None:
        self._server = server
        self.kind = kind
        self.objects: dict[Key, Object] = {}
        self.history: list[StoredVersion] = []
        self.forgotten = 0
        """Nothing up to this version is known any more."""

    def put(self, data: Object) -> Object:
        """Create an object, or write it again."""
        with self._server.turn:
            metadata = data.get("metadata", {})
            key = metadata.get("namespace", ""), metadata["name"]
            version = self._server.next_version()
            stored = {**data, "metadata": {**metadata, "resourceVersion": str(version)}}
            self._append(StoredVersion(version, key, self.objects.get(key), stored))
            self.objects[key] = stored
            return stored

    def delete(self, namespace: str, name: str) -> None:
        with self._server.turn:
            before = self.objects.pop((namespace, name))
            self._append(
                StoredVersion(self._server.next_version(), (namespace, name), before, None)
            )

    def forget(self) -> None:
        """Compaction: only what comes from now on can be watched."""
        with self._server.turn:
            self.forgotten = self._server.version
            self.history.clear()

    def as_of(self, version: int) -> dict[Key, Object]:
        """What was there at a version that is not forgotten; the present undone step by step."""
        state = dict(self.objects)
        for written in reversed(self.history):
            if written.version <= version:
                break
            if written.before is None:
                del state[written.key]
            else:
                state[written.key] = written.before
        return state

    def _append(self, written: StoredVersion) -> None:
        self.history.append(written)
        self._server.turn.notify_all()


class Faults(NamedTuple):
    """How likely each bad thing is, at each chance for it."""

    dropped: float = 0.0
    """A watch breaks off, often in the middle of a line."""
    expired: float = 0.0
    """A watch ends in 410."""
    failed: float = 0.0
    """A watch ends in 500."""
    ended: float = 0.0
    """A watch ends as if its time were over."""
    silent: float = 0.0
    """A watch stays open and says nothing any more."""
    dripped: float = 0.0
    """A watch begins a line and says a byte of it now and then."""
    refused: float = 0.0
    """A request is answered 429, 500, 503 or 410."""
    forgotten: float = 0.0
    """All history is gone before a request, and between the pages of a list."""
    slow: float = 0.0
    """A list takes its time."""
    stale: float = 0.0
    """A list that need not be the newest is not."""


class ReceivedRequest(NamedTuple):
    """A request that came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class FakeApiServer:
    """The server, its stores by plural, and what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.turn = threading.Condition()
        self.version = 0
        self.stores = {
            plural: Store(self, kind)
            for plural, kind in {
                "pods": "Pod",
                "nodes": "Node",
                "namespaces": "Namespace",
                "limitranges": "LimitRange",
                "resourcequotas": "ResourceQuota",
                "events": "Event",
                "configmaps": "ConfigMap",
                "deployments": "Deployment",
            }.items()
        }
        self.faults = Faults()
        self.dice = random.Random(0)
        self.tokens: set[str] | None = None
        """Who may ask; everybody where it is None."""
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        """Path → what is answered there, whatever was asked."""
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """Answered first, one a request."""
        self.forbidden: set[tuple[str, str]] = set()
        """Methods and plurals that nobody has the right to."""
        self.bookmarks = 0.5
        """Seconds between two of them."""
        self.said: list[bytes] = []
        """Lines that the next look of a watch tells, whatever they are."""
        self.page_hook: Callable[[], None] = lambda: None
        """Called after every page but the last."""
        self.request_log: list[ReceivedRequest] = []
        self.callers: dict[str, Object] = {}
        """Token → who holds it, as a TokenReview says; `audiences` of one are the token's own."""
        self.rights: set[tuple[str, str, str, str]] = set()
        """User, verb, namespace and name of pods that a SubjectAccessReview allows."""
        self.forwards: dict[tuple[str, str], int] = {}
        """Pod and port → the port of this machine that a port-forward to it leads to."""
        self.stopping = False
        self.compresses = False

    @property
    def pods(self) -> Store:
        return self.stores["pods"]

    def say(self, line: bytes) -> None:
        """Have a watch tell a line."""
        with self.turn:
            self.said.append(line)
            self.turn.notify_all()

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def happens(self, chance: float) -> bool:
        return bool(chance) and self.dice.random() < chance

    def requests(self, **query: str) -> list[ReceivedRequest]:
        """Those that had all of this in their query."""
        return [each for each in self.request_log if query.items() <= each.query.items()]


def pod(name: str, node: str | None = "node-1", **more: Any) -> Object:
    """A pod as a cluster holds it."""
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"memory": "64Mi"}}}],
        },
        "status": {"phase": "Running", "qosClass": "Burstable"},
        **more,
    }


@contextlib.contextmanager
def fake_api_server(
    identity: TlsFiles | None = None, clients: Path | None = None, port: int = 0
) -> Iterator[FakeApiServer]:
    """Serve until the block is left."""
    fake = FakeApiServer()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Clients that hang up are what many tests are about."""

    server = Server(("127.0.0.1", port), type("Handler", (_Handler,), {"fake": fake}))
    if identity is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.cert, identity.key)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    fake.url = f"{'http' if identity is None else 'https'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        fake.stopping = True
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    fake: FakeApiServer

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers["Content-Length"])))

    do_PATCH = do_POST  # noqa: N815 - http.server looks for this name

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    def _serve(self, body: bytes) -> None:
        fake, parts = self.fake, urlsplit(self.path)
        if fake.stopping:
            self.close_connection = True
            return
        query = dict(parse_qsl(parts.query))
        fake.request_log.append(
            ReceivedRequest(self.command, parts.path, query, dict(self.headers), body)
        )
        if not self._reject() and not self._route_special(parts.path, query, body):
            self._route(parts.path, query, body)

    def _reject(self) -> bool:
        """Whether the request was answered without a look at what it asks for."""
        fake = self.fake
        if fake.tokens is not None:
            _, _, token = self.headers.get("Authorization", "").partition(" ")
            if token not in fake.tokens:
                self._status(401, "Unauthorized")
                return True
        if fake.refusals:
            status, headers = fake.refusals.pop(0)
            self._status(status, "no", headers)
            return True
        if fake.happens(fake.faults.refused):
            status = fake.dice.choice([410, 429, 500, 503])
            self._status(status, "a bad day", {"Retry-After": "0"} if status == 429 else {})
            return True
        return False

    def _route_special(self, path: str, query: dict[str, str], body: bytes) -> bool:
        """Whether the request was for no object: an answer of its own, a review, a port-forward."""
        fake = self.fake
        *_, parent, last = ["", "", *path.strip("/").split("/")]
        if path in fake.answers:
            self._answer(*fake.answers[path])
        elif (self.command, last) in fake.forbidden:
            self._status(403, 'forbidden: User "jane" cannot do that', reason="Forbidden")
        elif path in _REVIEWS:
            self._json(201, _REVIEWS[path](fake, msgspec.json.decode(body)["spec"]))
        elif last == "portforward" and (parent, query["ports"]) in fake.forwards:
            port = query["ports"]
            serve_port_forward(self, fake.forwards[parent, port], int(port))
        else:
            return False
        return True

    def _route(self, path: str, query: dict[str, str], body: bytes) -> None:
        fake = self.fake
        *_, parent, last = ["", "", *path.strip("/").split("/")]
        if not path.startswith(("/api/v1/", "/apis/events.k8s.io/v1/", "/apis/apps/v1/")):
            self._status(404, "the server could not find the requested resource")
        elif fake.forbidden & {(self.command, last), (self.command, parent)}:
            self._status(403, 'forbidden: User "jane" cannot do that', reason="Forbidden")
        elif self.command == "POST":
            self._create(fake.stores[last], msgspec.json.decode(body))
        elif self.command == "PATCH":
            self._patch(fake.stores[parent], path, msgspec.json.decode(body))
        elif last in fake.stores:
            namespace = parent if "/namespaces/" in path and last != "namespaces" else ""
            asked = self._watch if "watch" in query else self._list
            asked(fake.stores[last], _wanted(query, namespace), query)
        elif parent in fake.stores:
            self._get(fake.stores[parent], last, path)
        else:
            self._status(404, "the server could not find the requested resource")

    def _create(self, store: Store, item: Object) -> None:
        metadata = item["metadata"]
        if (metadata.get("namespace", ""), metadata["name"]) in store.objects:
            return self._status(409, "already exists", reason="AlreadyExists")
        return self._json(201, store.put(item))

    def _patch(self, store: Store, path: str, changed: Object) -> None:
        found = store.objects.get(_key_in(path))
        if found is None:
            return self._status(404, "not found")
        return self._json(200, store.put({**found, **changed}))

    def _get(self, store: Store, name: str, path: str) -> None:
        found = store.objects.get(_key_in(path))
        if found is None:
            return self._status(404, f'{store.kind.lower()}s "{name}" not found')
        return self._json(200, {"kind": store.kind, "apiVersion": "v1", **found})

    def _list(self, store: Store, wanted: "_Wanted", query: dict[str, str]) -> None:
        fake = self.fake
        if fake.happens(fake.faults.slow):
            time.sleep(0.05)
        if fake.happens(fake.faults.forgotten):
            store.forget()
        limit = int(query.get("limit", 0))
        with fake.turn:
            at, _, start = query.get("continue", f"{self._moment(store, query)}/0").partition("/")
            if "continue" in query and int(at) < store.forgotten:
                return self._status(
                    410, "The provided continue parameter is too old", reason="Expired"
                )
            asked = query.get("resourceVersion", "0")
            if int(asked or 0) > fake.version:
                details = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
                return self._status(504, "Too large resource version", details=details)
            state = [each for _, each in sorted(store.as_of(int(at)).items()) if wanted(each)]
        page = state[int(start) : int(start) + limit] if limit else state
        metadata: Object = {"resourceVersion": at}
        if limit and int(start) + limit < len(state):
            metadata["continue"] = f"{at}/{int(start) + limit}"
            if "labelSelector" not in query and "fieldSelector" not in query:
                metadata["remainingItemCount"] = len(state) - int(start) - limit
        self._json(
            200,
            {"kind": f"{store.kind}List", "apiVersion": "v1", "metadata": metadata, "items": page},
        )
        if "continue" in metadata:
            fake.page_hook()
        return None

    def _moment(self, store: Store, query: dict[str, str]) -> int:
        """The version a new list is of."""
        fake = self.fake
        if not query.get("resourceVersion") or not fake.happens(fake.faults.stale):
            return fake.version
        oldest = max(int(query["resourceVersion"]), store.forgotten, fake.version - 20)
        return fake.dice.randint(min(oldest, fake.version), fake.version)

    def _watch(self, store: Store, wanted: "_Wanted", query: dict[str, str]) -> None:
        fake, since = self.fake, int(query["resourceVersion"])
        with fake.turn:
            if fake.happens(fake.faults.forgotten):
                store.forget()
            expired = since < store.forgotten
        if expired and self.fake.dice.random() < 0.5:
            return self._status(410, "too old resource version", reason="Expired")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if expired:
            self._chunk(_error(410, "too old resource version", "Expired"))
        elif not self._follow(store, wanted, since, float(query.get("timeoutSeconds", 0)) or 300.0):
            self.close_connection = True
            return None
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _follow(self, store: Store, wanted: "_Wanted", since: int, seconds: float) -> bool:
        """Whether the watch came to an end, and did not break off."""
        fake = self.fake
        over, bookmark = time.monotonic() + seconds, time.monotonic() + fake.bookmarks
        while not fake.stopping and time.monotonic() < over:
            with fake.turn:
                if since < store.forgotten:
                    self._chunk(_error(410, "too old resource version", "Expired"))
                    return True
                index = len(store.history)
                while index and store.history[index - 1].version > since:
                    index -= 1
                fresh = store.history[index:]
                said, fake.said = fake.said, []
                if not fresh and not said:
                    fake.turn.wait(POLL)
            for line in said:
                self._chunk(line + b"\n")
            for written in fresh:
                line = _event(store.kind, written, wanted)
                ended = self._misfortune(line)
                if ended is not None:
                    return ended
                if line:
                    self._chunk(line)
                since = written.version
            if time.monotonic() > bookmark:
                bookmark = time.monotonic() + fake.bookmarks
                with fake.turn:
                    known = since if store.history and store.history[-1].version > since else (
                        fake.version
                    )  # fmt: skip
                self._chunk(_bookmark(store.kind, known))
                since = max(since, known)
        return True

    def _misfortune(self, line: bytes) -> bool | None:
        """What befalls a watch before it tells a line: True for an end, False for a break."""
        fake, faults = self.fake, self.fake.faults
        if fake.happens(faults.dropped):
            self._broken_chunk(line[: fake.dice.randrange(len(line) + 1)])
            return False
        if fake.happens(faults.expired):
            self._chunk(_error(410, "too old resource version", "Expired"))
            return True
        if fake.happens(faults.failed):
            self._chunk(_error(500, "etcdserver: leader changed", "InternalError"))
            return True
        if fake.happens(faults.silent):
            eventually("it speaks again", lambda: fake.stopping or not fake.faults.silent)
            return False
        if fake.happens(faults.dripped):
            while not fake.stopping and fake.faults.dripped:
                self._chunk(b" ")
                time.sleep(POLL)
            return False
        return True if fake.happens(faults.ended) else None

    def _chunk(self, line: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def _broken_chunk(self, part: bytes) -> None:
        self.wfile.write(b"%x\r\n%s" % (len(part) + 10, part))
        self.wfile.flush()

    def _status(
        self, code: int, message: str, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        self._json(code, _status(code, message, **more), headers)

    def _json(self, status: int, data: object, headers: dict[str, str] | None = None) -> None:
        self._answer(status, headers or {}, msgspec.json.encode(data))

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if self.fake.compresses and "gzip" in self.headers.get("Accept-Encoding", ""):
            body, headers = gzip.compress(body, 1), {**headers, "Content-Encoding": "gzip"}
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _review_token(fake: FakeApiServer, spec: Object) -> Object:
    user = fake.callers.get(spec["token"])
    audiences = set((user or {}).get("audiences", ["api"]))
    wanted = set(spec.get("audiences", ["api"]))
    if user is None or not audiences & wanted:
        return {"status": {"authenticated": False, "error": "not known"}}
    shown = {name: each for name, each in user.items() if name != "audiences"}
    return {
        "status": {"authenticated": True, "user": shown, "audiences": sorted(audiences & wanted)}
    }


def _review_access(fake: FakeApiServer, spec: Object) -> Object:
    asked = spec["resourceAttributes"]
    assert (asked["group"], asked["resource"]) == ("", "pods")
    right = spec["user"], asked["verb"], asked.get("namespace", ""), asked.get("name", "")
    return {"status": {"allowed": right in fake.rights}}


_REVIEWS: dict[str, Callable[[FakeApiServer, Object], Object]] = {
    "/apis/authentication.k8s.io/v1/tokenreviews": _review_token,
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": _review_access,
}


def _key_in(path: str) -> Key:
    """Namespace and name of the object that a path ends in."""
    steps = path.strip("/").split("/")
    namespace = steps[steps.index("namespaces") + 1] if "namespaces" in steps[:-2] else ""
    return namespace, steps[-1]


class _Wanted(NamedTuple):
    """A selection, as far as this server knows them."""

    namespace: str
    fields: dict[str, str]
    labels: dict[str, str]

    def __call__(self, item: Object) -> bool:
        metadata = item["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        if any(_at(item, path) != value for path, value in self.fields.items()):
            return False
        return all(
            metadata.get("labels", {}).get(key) == value for key, value in self.labels.items()
        )


def _wanted(query: dict[str, str], namespace: str) -> _Wanted:
    terms = filter(None, query.get("fieldSelector", "").split(","))
    fields = dict(term.split("=", 1) for term in terms if "!=" not in term)
    labels = dict(term.split("=") for term in query.get("labelSelector", "").split(",") if term)
    return _Wanted(namespace, fields, labels)


def _at(item: Object, path: str) -> object:
    found: Any = item
    for step in path.split("."):
        found = (found or {}).get(step)
    return found


def _event(kind: str, written: StoredVersion, wanted: _Wanted) -> bytes:
    """What a watch tells of a write; nothing where it is of no concern to it."""
    was = written.before is not None and wanted(written.before)
    now = written.after is not None and wanted(written.after)
    if not was and not now:
        return b""
    type = "DELETED" if not now else "MODIFIED" if was else "ADDED"
    item = written.after if now else written.before
    assert item is not None
    metadata = {**item["metadata"], "resourceVersion": str(written.version)}
    shown = {"kind": kind, "apiVersion": "v1", **item, "metadata": metadata}
    return msgspec.json.encode({"type": type, "object": shown}) + b"\n"


def _bookmark(kind: str, version: int) -> bytes:
    item = {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}}
    return msgspec.json.encode({"type": "BOOKMARK", "object": item}) + b"\n"


def _error(code: int, message: str, reason: str) -> bytes:
    return (
        msgspec.json.encode({"type": "ERROR", "object": _status(code, message, reason=reason)})
        + b"\n"
    )


def _status(code: int, message: str, **more: Any) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "code": code,
        **more,
    }
