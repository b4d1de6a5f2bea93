"""`memqos web`: who gets an answer, what it may do in a browser, and where it listens."""

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import BadStatusLine, HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from tests.commands import ROOT, memqos
from tests.eventually import eventually
from tests.fakes.busy_node import BusyNode
from tests.fakes.client import with_openssl
from tests.fakes.kubelet import self_signed

from memqos.cli import audit_run, web_data
from memqos.cli.web import server_names
from memqos.cli.web_data import WebData
from memqos.converge.node_plan import PlanOptions
from memqos.converge.node_sources import SnapshotNode
from memqos.converge.refresher import Refresher
from memqos.errors import InputError

SNAPSHOT = ("--snapshot", "tests/nodes/k138-none.json")


class Server:
    """A server that runs, and a client of it."""

    def __init__(self, url: str, pid: int = 0) -> None:
        self.pid = pid
        place, _, self.token = url.strip().partition("/#token=")
        self.place = place.removeprefix("http://")

    def ask(
        self, path: str, *, method: str = "GET", token: str | None = None, host: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        address, _, port = self.place.rpartition(":")
        connection = HTTPConnection(address, int(port), timeout=20)
        headers = {"Host": host or self.place}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, body

    def data(self, path: str) -> Any:
        status, _, body = self.ask(path, token=self.token)
        assert status == 200, body
        return json.loads(body)


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    file = folder / "address"
    log = folder / "log"
    command = [sys.executable, "-m", "memqos", "web", "--address-file", str(file), *options]
    with log.open("w") as logged:
        process = subprocess.Popen(command, cwd=ROOT, stdout=logged, stderr=logged)
    try:
        eventually("it listens", lambda: file.exists() or process.poll() is not None)
        assert file.exists(), log.read_text()
        yield Server(file.read_text(), process.pid)
    finally:
        process.terminate()
        process.wait()
    assert process.returncode == 0
    assert Server(file.read_text()).token not in log.read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = (*SNAPSHOT, "--audit", "examples/cluster/dump.json")
    with serving(tmp_path_factory.mktemp("web"), *options) as found:
        yield found


def test_the_address_is_private(tmp_path: Path) -> None:
    with serving(tmp_path, *SNAPSHOT) as found:
        assert len(found.token) >= 32
        assert found.place.startswith("127.0.0.1:")
        assert os.stat(tmp_path / "address").st_mode & 0o777 == 0o600


@pytest.mark.parametrize("path", ["/api/node", "/api/status", "/api/story?pod=a/b", "/api/audit"])
def test_no_data_without_the_token(server: Server, path: str) -> None:
    assert server.ask(path)[0] == 401
    assert server.ask(path, token="wrong")[0] == 401
    assert server.ask(path, token="\xe4")[0] == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", ""])
def test_another_name_is_refused_whatever_the_token(server: Server, host: str) -> None:
    for path in ("/", "/api/node"):
        status, _, _ = server.ask(path, token=server.token, host=host or "x")
        assert status == 421
    port = server.place.rpartition(":")[2]
    assert server.ask("/", host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading(server: Server, method: str) -> None:
    assert server.ask("/api/node", method=method, token=server.token)[0] == 405


def test_a_browser_loads_nothing_from_elsewhere(server: Server) -> None:
    for path in ("/", "/app.js", "/api/node", "/missing"):
        policy = server.ask(path)[1]["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
    for path in ("/", "/app.js", "/style.css"):
        assert b"//" not in server.ask(path)[2].replace(b"// ", b"").replace(b"\n//", b"")


def test_paths_reach_no_other_file(server: Server) -> None:
    for path in ("/../web_page.py", "/%2e%2e/http.py", "/page/index.html", "//etc/passwd"):
        assert server.ask(path, token=server.token)[0] == 404


def test_rows_come_by_windows(server: Server) -> None:
    data = server.data("/api/node?sort=usage&first=2&count=3")
    assert (len(data["containers"]), data["total"], data["first"]) == (3, 21, 2)
    filtered = server.data("/api/node?filter=sidecar&count=100")
    assert filtered["matched"] == 4
    assert server.ask("/api/node?sort=nonsense", token=server.token)[0] == 400
    assert server.ask("/api/node?first=-1", token=server.token)[0] == 400
    assert server.ask("/api/node?filter=" + "x" * 5000, token=server.token)[0] == 414


def test_a_container_in_full_has_derivations(server: Server) -> None:
    path = server.data("/api/node")["containers"][0]["path"]
    row = server.data(f"/api/container?path={path}")["container"]
    assert row["planned"]["memory.high"]["rule"]
    assert server.ask("/api/container?path=/nowhere", token=server.token)[0] == 400


def test_the_audit_is_on_the_page(server: Server) -> None:
    assert server.data("/api/views")["views"] == ["node", "status", "audit"]
    eventually("the audit is done", lambda: server.data("/api/audit")["html"])
    assert "Memory audit" in server.data("/api/audit")["html"]
    assert server.ask("/api/cluster", token=server.token)[0] == 400


@pytest.fixture
def refresher(monkeypatch: pytest.MonkeyPatch) -> Refresher:
    monkeypatch.chdir(ROOT)
    return Refresher(SnapshotNode(SNAPSHOT[1], PlanOptions()), 1)


def test_an_audit_that_takes_long_holds_up_no_other_answer(
    refresher: Refresher, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, ended = threading.Event(), []

    def audit(*_: object) -> None:
        may_end.wait()
        ended.append(True)
        raise InputError(f"dump {len(ended)} cannot be read")

    monkeypatch.setattr(audit_run, "run_audit", audit)
    monkeypatch.setattr(web_data, "_AUDIT_PATIENCE", 0)
    request = audit_run.AuditRequest(files=("dump",), rules=())
    answer = WebData(refresher, request, None).routes["/api/audit"]
    assert answer({}) == answer({}) == {"html": None}
    may_end.set()
    for count in (1, 2):  # one that failed is done again when somebody asks
        with pytest.raises(InputError, match=f"dump {count} cannot be read"):
            eventually("the audit has failed", lambda: answer({})["html"])


def test_every_view_says_that_the_node_could_not_be_read_again(refresher: Refresher) -> None:
    refresher.fault = "no API server"
    routes = WebData(refresher, None, None).routes
    for path in ("/api/node", "/api/status"):
        assert "no API server" in routes[path]({})["notes"]


def test_stories_have_levels_and_the_reason_of_each(tmp_path: Path) -> None:
    with serving(tmp_path, "--play", "examples/records") as found:
        (container,) = found.data("/api/story?pod=shop/api-1")["containers"]
        assert {"killed", "throttled", "resized"} <= {
            chapter["kind"] for chapter in container["chapters"]
        }
        assert container["points"][0]["current"]
        assert {write["rule"] for write in container["writes"]} >= {"low/tiered"}
        assert found.data("/api/story?pod=shop/none")["containers"] == []


def test_a_tree_is_read_only_while_somebody_looks(tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 2)
    with serving(tmp_path, *node.options) as found:
        before = found.data("/api/node")["at"]
        eventually("it is read again", lambda: found.data("/api/node")["at"] > before)
        status = found.data("/api/status")
        assert status["mode"] == "no agent"


def test_a_name_of_the_page_counts_whatever_its_case(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "Node.Example", *SNAPSHOT) as found:
        port = found.place.rpartition(":")[2]
        assert found.ask("/", host=f"node.example:{port}")[0] == 200
        assert found.ask("/", host=f"NODE.example:{port}")[0] == 200


def test_browsers_leave_the_default_port_out() -> None:
    assert server_names("127.0.0.1:80", (), "80") == {
        "127.0.0.1",
        "127.0.0.1:80",
        "localhost",
        "localhost:80",
    }
    assert server_names("[::1]:80", (), "443") == {"[::1]:80", "localhost:80"}


def test_an_address_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    done = memqos("web", "--address-file", str(tmp_path / "none" / "address"), *SNAPSHOT)
    assert done.code == 1
    assert "it cannot be written: no such file or directory" in done.err
    assert "--out" not in done.err


def test_beyond_loopback_it_takes_tls() -> None:
    done = memqos("web", "--listen", "0.0.0.0:0", "--address-file", "/dev/null", *SNAPSHOT)
    assert done.code == 1
    assert "--tls-cert" in done.err


@with_openssl
def test_beyond_loopback_it_serves_over_tls(tmp_path: Path) -> None:
    files = self_signed(tmp_path, "page", "IP:127.0.0.1")
    place = ("--listen", "0.0.0.0:0", "--host", "127.0.0.1")
    keys = ("--tls-cert", str(files.cert), "--tls-key", str(files.key))
    with serving(tmp_path, *place, *keys, *SNAPSHOT) as found:
        port = int(found.place.rpartition(":")[2])
        assert found.place == f"https://127.0.0.1:{port}", "a browser cannot open 0.0.0.0"
        trusted = ssl.create_default_context(cafile=files.cert)
        connection = HTTPSConnection("127.0.0.1", port, timeout=20, context=trusted)
        connection.request("GET", "/api/node", headers={"Authorization": f"Bearer {found.token}"})
        assert connection.getresponse().status == 200
        connection.close()
        plain = HTTPConnection("127.0.0.1", port, timeout=20)
        plain.request("GET", "/")
        with pytest.raises((BadStatusLine, ConnectionError)):
            plain.getresponse()
        plain.close()


def test_the_address_is_not_printed_where_nobody_reads_it() -> None:
    done = memqos("web", *SNAPSHOT)
    assert done.code == 64
    assert "--address-file" in done.err


def test_where_no_browser_opens_the_address_can_be_found(tmp_path: Path) -> None:
    """The output may be a pipe, and the machine without a display."""
    displays = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    environment = {name: value for name, value in os.environ.items() if name not in displays}
    process = subprocess.Popen(
        [sys.executable, "-m", "memqos", "web", "--open", *SNAPSHOT],
        cwd=ROOT,
        env={**environment, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        told = process.stderr.readline()
        (file,) = tmp_path.glob("memqos-*/open.html")
        assert str(file) in told
        assert "no browser was found here" in process.stderr.readline()
        assert "#token=" in file.read_text()
    finally:
        process.terminate()
        output, complaints = process.communicate()
    assert "#token=" not in told + output + complaints
