"""The kubelet's own endpoint is asked as its operators allow, and every refusal says what to do."""

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.fakes.client import refusal, with_openssl
from tests.fakes.kubelet import FakeKubelet, TlsFiles, fake_kubelet, self_signed

from memqos.errors import InputError, Unreachable
from memqos.host import kubelet as client
from memqos.host.kubelet import KubeletCredentials, KubeletEndpoint

PODS = {"kind": "PodList", "apiVersion": "v1", "items": []}


@pytest.fixture
def kubelet() -> Iterator[FakeKubelet]:
    with fake_kubelet({"/pods": PODS}) as served:
        yield served


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """That of a kubelet, which knows its node's name and no address."""
    name = os.uname().nodename.lower()
    return self_signed(tmp_path_factory.mktemp("pki"), "kubelet", f"DNS:{name}")


class TestPlain:
    def test_an_answer_comes_as_it_was_sent(self, kubelet: FakeKubelet) -> None:
        kubelet.answers["/pods"] = b'{"kind": \xff'
        assert KubeletEndpoint(kubelet.url).get("/pods") == b'{"kind": \xff'

    def test_the_last_byte_may_close_the_connection(
        self, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = HTTPResponse.read1

        def read_and_close(response: HTTPResponse, size: int) -> bytes:
            """As Python 3.11.8 and newer do."""
            data = read(response, size)
            if not response.length:
                response.close()
            return data

        monkeypatch.setattr(HTTPResponse, "read1", read_and_close)
        assert b"PodList" in KubeletEndpoint(kubelet.url).get("/pods")

    @pytest.mark.parametrize("path", ["", "/", "/pods", "/pods/"])
    def test_the_address_may_name_the_pods(self, kubelet: FakeKubelet, path: str) -> None:
        KubeletEndpoint(kubelet.url + path).get("/pods")
        assert [path for path, _ in kubelet.request_log] == ["/pods"]

    def test_no_one_is_named_to_a_kubelet_that_does_not_ask(self, kubelet: FakeKubelet) -> None:
        KubeletEndpoint(kubelet.url).get("/pods")
        ((_, headers),) = kubelet.request_log
        assert "Authorization" not in headers

    def test_a_token_never_crosses_a_plain_connection(
        self, kubelet: FakeKubelet, tmp_path: Path
    ) -> None:
        token = tmp_path / "token"
        token.write_text("secret")
        text = refusal(
            lambda: KubeletEndpoint(kubelet.url, KubeletCredentials(token_file=str(token)))
        )
        assert "without TLS" in text
        assert kubelet.request_log == []

    def test_a_proxy_of_the_environment_is_not_used(
        self, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        assert KubeletEndpoint(kubelet.url).get("/pods")


class TestAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "ftp://127.0.0.1",
            "https://",
            "https://127.0.0.1:port",
            "https://user:secret@127.0.0.1:10250",
            "https://apiserver:6443/api/v1/nodes/node1/proxy/pods",
            "https://127.0.0.1:10250/pods?watch=1",
        ],
    )
    def test_what_is_no_kubelets_address_is_refused(self, url: str) -> None:
        with pytest.raises(InputError) as caught:
            KubeletEndpoint(url)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("url", "full"),
        [
            ("https://node1", "https://node1:10250"),
            ("http://node1/", "http://node1:10255"),
            ("https://[::1]:7/pods", "https://[::1]:7"),
        ],
    )
    def test_a_kubelets_ports_are_known(self, url: str, full: str) -> None:
        assert KubeletEndpoint(url).url == full


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "path", "hint"),
        [
            (401, "/pods", "--token-file"),
            (403, "/pods", "nodes/pods (from 1.33 on) or nodes/proxy"),
            (403, "/configz", "nodes/configz (from 1.33 on) or nodes/proxy"),
            (403, "/metrics", "nodes/metrics"),
            (404, "/pods", "the address of a kubelet?"),
            (500, "/pods", "log"),
            (302, "/pods", "log"),
        ],
    )
    def test_each_says_what_to_do(
        self, kubelet: FakeKubelet, status: int, path: str, hint: str
    ) -> None:
        kubelet.answers[path] = (status, b"no")
        text = refusal(lambda: KubeletEndpoint(kubelet.url).get(path))
        assert text.startswith(kubelet.url)
        assert hint in text

    def test_plain_http_to_the_secure_port(self, kubelet: FakeKubelet) -> None:
        kubelet.answers["/pods"] = (400, b"Client sent an HTTP request to an HTTPS server.\n")
        assert "write https://" in refusal(lambda: KubeletEndpoint(kubelet.url).get("/pods"))

    def test_nobody_there(self) -> None:
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
            text = refusal(lambda: KubeletEndpoint(url).get("/pods"))
        assert "nothing listens there" in text

    def test_a_name_nobody_knows(self) -> None:
        text = refusal(lambda: KubeletEndpoint("http://nowhere.invalid").get("/pods"))
        assert "unknown" in text

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "was cut off"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", "was cut off"),
        ],
    )
    def test_an_answer_that_is_none(self, kubelet: FakeKubelet, raw: bytes, message: str) -> None:
        kubelet.raw = raw
        assert message in refusal(lambda: KubeletEndpoint(kubelet.url).get("/pods"))

    def test_an_answer_too_large_is_not_read_to_its_end(
        self, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client, "ANSWER_SIZE_LIMIT", 1 << 20)
        kubelet.answers["/pods"] = b" " * ((1 << 20) + 1)
        assert "larger than 1Mi" in refusal(lambda: KubeletEndpoint(kubelet.url).get("/pods"))

    def test_silence_has_an_end(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            text = refusal(lambda: KubeletEndpoint(url, timeout=0.2).get("/pods"))
        assert "no answer within 0.2 s" in text

    def test_so_has_an_answer_that_drips(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            dripping = threading.Thread(target=_drip, args=(server,))
            dripping.start()
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            text = refusal(lambda: KubeletEndpoint(url, timeout=0.5).get("/pods"))
            dripping.join()
        assert "no answer within 0.5 s" in text


def _drip(server: socket.socket) -> None:
    """Answer byte by byte, until the other end has had enough."""
    connected, _ = server.accept()
    with connected:
        connected.recv(1 << 16)
        connected.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")

        def has_left() -> bool:
            try:
                connected.sendall(b" ")
            except OSError:
                return True
            return False

        eventually("the client has left", has_left)


def signed_by(issuer: TlsFiles, folder: Path, name: str, extension: str) -> TlsFiles:
    """A certificate with an extension, out of openssl."""
    signed = TlsFiles(folder / f"{name}.crt", folder / f"{name}.key")
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(extension)
    ask = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    ask += ["-subj", f"/CN={name}", "-keyout", str(signed.key), "-out", str(request)]
    sign = ["x509", "-req", "-in", str(request), "-CA", str(issuer.cert), "-days", "2"]
    sign += ["-CAkey", str(issuer.key), "-extfile", str(extensions), "-out", str(signed.cert)]
    for arguments in (ask, sign):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
    return signed


@with_openssl
class TestSecure:
    def test_a_kubelets_own_certificate_is_good_on_loopback(self, identity: TlsFiles) -> None:
        with fake_kubelet({"/pods": PODS}, identity) as kubelet:
            found = KubeletEndpoint(kubelet.url, KubeletCredentials(ca_file=str(identity.cert)))
            assert b"PodList" in found.get("/pods")

    def test_a_token_is_sent_and_read_again_each_time(
        self, identity: TlsFiles, tmp_path: Path
    ) -> None:
        token = tmp_path / "token"
        with fake_kubelet({"/pods": PODS}, identity) as kubelet:
            credentials = KubeletCredentials(token_file=str(token), ca_file=str(identity.cert))
            endpoint = KubeletEndpoint(kubelet.url, credentials)
            for text in ("one\n", "two"):
                token.write_text(text)
                endpoint.get("/pods")
            sent = [headers["Authorization"] for _, headers in kubelet.request_log]
        assert sent == ["Bearer one", "Bearer two"]

    @pytest.mark.parametrize("text", ["", "two words", "ein\ntoken", "schlüssel"])
    def test_what_is_no_token_is_refused_and_not_shown(
        self, identity: TlsFiles, tmp_path: Path, text: str
    ) -> None:
        token = tmp_path / "token"
        token.write_text(text)
        with fake_kubelet({"/pods": PODS}, identity) as kubelet:
            endpoint = KubeletEndpoint(kubelet.url, KubeletCredentials(token_file=str(token)))
            message = refusal(lambda: endpoint.get("/pods"))
            assert kubelet.request_log == []
        assert "not a token" in message
        assert not text or text not in message

    def test_a_stranger_is_not_told_the_token(self, identity: TlsFiles, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("secret")
        with fake_kubelet({"/pods": PODS}, identity) as kubelet:
            endpoint = KubeletEndpoint(kubelet.url, KubeletCredentials(token_file=str(token)))
            text = refusal(lambda: endpoint.get("/pods"))
            assert kubelet.request_log == []
        assert "not trusted" in text
        assert "--ca-file" in text

    def test_a_certificate_for_another_name_is_refused(self, tmp_path: Path) -> None:
        other = self_signed(tmp_path, "other", "DNS:other.example")
        with fake_kubelet({"/pods": PODS}, other) as kubelet:
            credentials = KubeletCredentials(ca_file=str(other.cert))
            text = refusal(lambda: KubeletEndpoint(kubelet.url, credentials).get("/pods"))
            named = KubeletCredentials(ca_file=str(other.cert), server_name="other.example")
            assert KubeletEndpoint(kubelet.url, named).get("/pods")
        assert "--server-name" in text

    def test_one_for_the_address_is_good(self, tmp_path: Path) -> None:
        local = self_signed(tmp_path, "local", "IP:127.0.0.1")
        with fake_kubelet({"/pods": PODS}, local) as kubelet:
            assert KubeletEndpoint(kubelet.url, KubeletCredentials(ca_file=str(local.cert))).get(
                "/pods"
            )

    def test_an_authority_without_key_usage_is_good_with_every_python(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create = ssl.create_default_context

        def create_strictly(**options: Any) -> ssl.SSLContext:
            """As Python 3.13 and newer do."""
            context = create(**options)
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            return context

        monkeypatch.setattr(ssl, "create_default_context", create_strictly)
        authority = self_signed(tmp_path, "authority", "DNS:authority")
        server = signed_by(authority, tmp_path, "server", "subjectAltName=IP:127.0.0.1")
        with fake_kubelet({"/pods": PODS}, server) as kubelet:
            trust = KubeletCredentials(ca_file=str(authority.cert))
            assert KubeletEndpoint(kubelet.url, trust).get("/pods")

    def test_an_intermediate_authority_can_be_the_anchor(self, tmp_path: Path) -> None:
        root = self_signed(tmp_path, "root", "DNS:root")
        between = signed_by(root, tmp_path, "between", "basicConstraints=critical,CA:TRUE")
        server = signed_by(between, tmp_path, "server", "subjectAltName=IP:127.0.0.1")
        with fake_kubelet({"/pods": PODS}, server) as kubelet:
            trust = KubeletCredentials(ca_file=str(between.cert))
            assert KubeletEndpoint(kubelet.url, trust).get("/pods")

    def test_a_client_certificate_is_shown_where_it_is_asked_for(
        self, identity: TlsFiles, tmp_path: Path
    ) -> None:
        mine = self_signed(tmp_path, "me", "DNS:me")
        with fake_kubelet({"/pods": PODS}, identity, clients=mine.cert) as kubelet:
            trust = KubeletCredentials(ca_file=str(identity.cert))
            with pytest.raises(Unreachable):
                KubeletEndpoint(kubelet.url, trust).get("/pods")
            known = KubeletCredentials(
                ca_file=str(identity.cert),
                client_cert=str(mine.cert),
                client_key=str(mine.key),
            )
            assert KubeletEndpoint(kubelet.url, known).get("/pods")

    @pytest.mark.parametrize("content", [None, b"", b"not a certificate"])
    def test_files_that_hold_no_certificate_are_named(
        self, identity: TlsFiles, tmp_path: Path, content: bytes | None
    ) -> None:
        file = tmp_path / "file.pem"
        if content is not None:
            file.write_bytes(content)
        for credentials in (
            KubeletCredentials(ca_file=str(file)),
            KubeletCredentials(ca_file=str(identity.cert), client_cert=str(file)),
        ):
            with pytest.raises(InputError) as caught:
                KubeletEndpoint("https://127.0.0.1:1", credentials).get("/pods")
            assert caught.value.file == str(file)

    def test_a_key_under_a_passphrase_does_not_wait_for_one(
        self, identity: TlsFiles, tmp_path: Path
    ) -> None:
        mine = self_signed(tmp_path, "me", "DNS:me")
        locked = tmp_path / "locked.key"
        os.system(
            f"openssl pkcs8 -topk8 -in {mine.key} -passout pass:word -out {locked} 2>/dev/null"
        )
        credentials = KubeletCredentials(client_cert=str(mine.cert), client_key=str(locked))
        text = refusal(lambda: KubeletEndpoint("https://127.0.0.1:1", credentials).get("/pods"))
        assert "without passphrase" in text

    def test_https_to_the_plain_port(self, kubelet: FakeKubelet) -> None:
        url = kubelet.url.replace("http", "https")
        assert "is it an http address?" in refusal(lambda: KubeletEndpoint(url).get("/pods"))
