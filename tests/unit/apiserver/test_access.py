"""Who asks an API server, through what and by which kubeconfig; what is wrong is told."""

import base64
import json
import os
import re
import socket
import stat
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from tests.eventually import PATIENCE, eventually
from tests.fakes.apiserver import FakeApiServer, fake_api_server, pod
from tests.fakes.client import client, refusal, with_openssl
from tests.fakes.kubelet import TlsFiles, self_signed

from memqos.errors import InputError, Unreachable
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.kubeconfig import (
    Cluster,
    ClusterAccess,
    User,
    cluster_access,
    in_cluster,
    load_kubeconfig,
)
from memqos.host.apiserver.pager import list_objects
from memqos.host.apiserver.proxies import proxy_of
from memqos.host.apiserver.reflector import Reflector, WatchTimings
from memqos.host.apiserver.resources import POD_RESOURCE, ApiResource
from memqos.kube.pod import ObjectMeta


@with_openssl
class TestCredentials:
    @pytest.fixture
    def secure(self, identity: TlsFiles) -> Iterator[FakeApiServer]:
        with fake_api_server(identity) as served:
            served.tokens = {"first"}
            yield served

    def test_a_token_is_shown_to_a_server_that_is_trusted(
        self, secure: FakeApiServer, identity: TlsFiles
    ) -> None:
        api = client(secure, User(token="first"), certificate_authority=str(identity.cert))
        assert list_objects(api, POD_RESOURCE).items == []

    def test_the_authority_may_stand_in_the_kubeconfig(
        self, secure: FakeApiServer, identity: TlsFiles
    ) -> None:
        data = base64.b64encode(identity.cert.read_bytes()).decode()
        api = client(secure, User(token="first"), certificate_authority_data=data)
        assert list_objects(api, POD_RESOURCE).items == []

    def test_a_server_that_is_not_trusted_learns_nothing(self, secure: FakeApiServer) -> None:
        text = refusal(lambda: list_objects(client(secure, User(token="first")), POD_RESOURCE))
        assert "no secure connection" in text
        assert secure.request_log == []

    def test_unless_the_kubeconfig_says_not_to_look(self, secure: FakeApiServer) -> None:
        api = client(secure, User(token="first"), insecure_skip_tls_verify=True)
        assert list_objects(api, POD_RESOURCE).items == []

    def test_the_certificate_may_be_for_another_name(
        self, secure: FakeApiServer, identity: TlsFiles
    ) -> None:
        trusted = {"certificate_authority": str(identity.cert)}
        named = client(secure, User(token="first"), tls_server_name="api.example", **trusted)
        assert list_objects(named, POD_RESOURCE).items == []
        other = client(secure, User(token="first"), tls_server_name="other.example", **trusted)
        assert "no secure connection" in refusal(lambda: list_objects(other, POD_RESOURCE))

    def test_a_token_that_was_replaced_is_used_from_the_next_request_on(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("first\n")
        user = User(token_file=str(file))
        api = client(secure, user, certificate_authority=str(identity.cert))
        list_objects(api, POD_RESOURCE)
        file.write_text("second")
        secure.tokens = {"first", "second"}
        list_objects(api, POD_RESOURCE)
        assert [each.headers["Authorization"] for each in secure.request_log] == [
            "Bearer first",
            "Bearer second",
        ]

    def test_one_refused_is_read_again_before_giving_up(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("stale")
        user = User(token_file=str(file))
        api = client(secure, user, certificate_authority=str(identity.cert))
        assert "it rejects the credentials (401)" in refusal(
            lambda: list_objects(api, POD_RESOURCE)
        )
        assert len(secure.request_log) == 2

    def test_a_watch_outlives_the_token_it_began_with(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("first")
        user = User(token_file=str(file))
        api = client(secure, user, certificate_authority=str(identity.cert))
        pace = WatchTimings(watch=(1, 1), short=0.0, slowness=0.01)
        watch = Reflector(api, POD_RESOURCE, timings=pace)
        watch.start()
        try:
            watch.wait(PATIENCE)
            file.write_text("second")
            secure.tokens = {"second"}
            eventually(
                "the new token is shown",
                lambda: (
                    "Bearer second" in [e.headers.get("Authorization") for e in secure.request_log]
                ),
            )
            secure.pods.put(pod("new"))
            eventually("the pod has come", watch.objects)
        finally:
            watch.stop()

    def test_a_client_certificate_may_stand_for_the_user(
        self, identity: TlsFiles, tmp_path: Path
    ) -> None:
        jane = self_signed(tmp_path, "jane", "DNS:jane")
        with fake_api_server(identity, clients=jane.cert) as server:
            of_files = User(client_certificate=str(jane.cert), client_key=str(jane.key))
            inline = User(
                client_certificate_data=base64.b64encode(jane.cert.read_bytes()).decode(),
                client_key_data=base64.b64encode(jane.key.read_bytes()).decode(),
            )
            for user in (of_files, inline):
                api = client(server, user, certificate_authority=str(identity.cert))
                assert list_objects(api, POD_RESOURCE).items == []

    def test_one_that_was_replaced_is_shown_from_the_next_request_on(
        self, identity: TlsFiles, tmp_path: Path
    ) -> None:
        jane, joe = (self_signed(tmp_path, name, f"DNS:{name}") for name in ("jane", "joe"))
        both = tmp_path / "current.pem"
        both.write_bytes(joe.cert.read_bytes() + joe.key.read_bytes())
        with fake_api_server(identity, clients=jane.cert) as server:
            user = User(client_certificate=str(both), client_key=str(both))
            api = client(server, user, certificate_authority=str(identity.cert))
            with pytest.raises(Unreachable):
                list_objects(api, POD_RESOURCE)
            # Another file, as whoever renews it puts there: two writes may have the same time.
            fresh = both.with_suffix(".new")
            fresh.write_bytes(jane.cert.read_bytes() + jane.key.read_bytes())
            fresh.replace(both)
            assert list_objects(api, POD_RESOURCE).items == []

    @pytest.mark.parametrize(
        ("user", "message"),
        [
            (User(client_certificate_data="!"), "not base64"),
            (User(client_certificate_data="QQ=="), "without its key"),
            (User(client_certificate_data="QQ==", client_key_data="QQ=="), "in PEM"),
            (User(client_certificate="/none", client_key="/none"), "no such file"),
            (User(token_file="/none"), "no such file"),
        ],
    )
    def test_what_is_no_credential_is_refused(
        self, secure: FakeApiServer, identity: TlsFiles, user: User, message: str
    ) -> None:
        api = client(secure, user, certificate_authority=str(identity.cert))
        assert message in refusal(lambda: list_objects(api, POD_RESOURCE))

    def test_an_authority_that_cannot_be_read_is_named(self, secure: FakeApiServer) -> None:
        api = client(secure, certificate_authority="/none/ca.crt")
        assert refusal(lambda: list_objects(api, POD_RESOURCE)).startswith("/none/ca.crt: ")

    def test_somebody_may_ask_in_anothers_name(
        self, secure: FakeApiServer, identity: TlsFiles
    ) -> None:
        user = User(token="first", impersonate="jane", impersonate_groups=("ops",))
        list_objects(client(secure, user, certificate_authority=str(identity.cert)), POD_RESOURCE)
        ((*_, headers, _),) = secure.request_log
        assert (headers["Impersonate-User"], headers["Impersonate-Group"]) == ("jane", "ops")

    def test_nobody_is_named_over_a_plain_connection(self, server: FakeApiServer) -> None:
        list_objects(client(server, User(token="secret", impersonate="jane")), POD_RESOURCE)
        assert "secret" not in str(server.request_log)
        assert "jane" not in str(server.request_log)

    @pytest.mark.parametrize(
        ("user", "field"),
        [
            (User(token="sec\nret"), "token"),
            (User(token="secret\n"), "token"),
            (User(token="sécret"), "token"),
            (User(token="first", impersonate="sec\rret"), "as"),
            (User(token="first", impersonate_uid="secret\n"), "as-uid"),
            (User(token="first", impersonate_groups=("ops", "secret\x00")), "as-groups"),
        ],
    )
    def test_a_value_no_header_may_have_is_refused_and_not_quoted(
        self, secure: FakeApiServer, identity: TlsFiles, user: User, field: str
    ) -> None:
        api = client(secure, user, certificate_authority=str(identity.cert))
        with pytest.raises(InputError) as caught:
            list_objects(api, POD_RESOURCE)
        assert caught.value.field == field
        assert not re.search("s.c\\s*ret", "".join(traceback.format_exception(caught.value)))
        watch = Reflector(api, POD_RESOURCE, timings=WatchTimings(slowness=0.01))
        watch.start()
        try:
            eventually("it was refused", lambda: watch.fault is not None)
            with pytest.raises(InputError) as caught:
                watch.wait(0)
        finally:
            watch.stop()
        assert not re.search("s.c\\s*ret", repr(watch.fault))
        assert secure.request_log == []

    def test_a_name_in_any_script_is_sent_as_the_api_server_reads_it(
        self, secure: FakeApiServer, identity: TlsFiles
    ) -> None:
        user = User(token="first", impersonate="zoë", impersonate_groups=("команда",))
        list_objects(client(secure, user, certificate_authority=str(identity.cert)), POD_RESOURCE)
        ((*_, headers, _),) = secure.request_log
        names = headers["Impersonate-User"], headers["Impersonate-Group"]
        assert [name.encode("latin-1").decode() for name in names] == ["zoë", "команда"]

    def test_a_server_that_echoes_the_token_does_not_bring_it_into_a_message(
        self, secure: FakeApiServer, identity: TlsFiles
    ) -> None:
        secure.tokens = None
        user = User(token="secret")
        api = client(secure, user, certificate_authority=str(identity.cert))
        secure.answers["/api/v1/pods"] = (400, {}, b"Authorization: Bearer secret, was that you?")
        text = refusal(lambda: list_objects(api, POD_RESOURCE))
        assert "was that you?" in text
        assert "secret" not in text

    @pytest.mark.parametrize(
        "echo",
        [
            "Basic amFuZTpzZWNyZXQgwrU=",
            'user "jane", password "secret µ"',
            r"password=secret \xb5",
            "password=secret%20%C2%B5",
            base64.b64encode("secret µ".encode()).decode(),
        ],
    )
    def test_nor_the_password_in_any_form(
        self, secure: FakeApiServer, identity: TlsFiles, echo: str
    ) -> None:
        secure.tokens = None
        user = User(username="jane", password="secret µ")
        api = client(secure, user, certificate_authority=str(identity.cert))
        secure.answers["/api/v1/pods"] = (400, {}, f"{echo}, was that you?".encode())
        text = refusal(lambda: list_objects(api, POD_RESOURCE))
        assert "was that you?" in text
        assert not re.search("secret|amFuZT|c2Vjc", text)

    def test_nor_a_token_that_was_replaced(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        secure.tokens = None
        file = tmp_path / "token"
        api = client(secure, User(token_file=str(file)), certificate_authority=str(identity.cert))
        for number in range(3):
            file.write_text(f"secret-{number}")
            list_objects(api, POD_RESOURCE)
        secure.answers["/api/v1/pods"] = (400, {}, b"secret-0, secret-1 or secret-2?")
        text = refusal(lambda: list_objects(api, POD_RESOURCE))
        assert text.partition(": …")[2].startswith(", … or …?")

    def test_nor_a_part_of_one_where_a_message_is_cut(
        self, secure: FakeApiServer, identity: TlsFiles
    ) -> None:
        secure.tokens = None
        token = "secret" * 2000
        api = client(secure, User(token=token), certificate_authority=str(identity.cert))
        for body in (f"{'x' * 290}{token}", f"{token} " * 9):
            secure.answers["/api/v1/pods"] = (400, {}, body.encode())
            assert "secret" not in refusal(lambda: list_objects(api, POD_RESOURCE))

    def test_nor_what_a_decoder_quotes(self, secure: FakeApiServer, identity: TlsFiles) -> None:
        api = client(secure, User(token="first"), certificate_authority=str(identity.cert))

        class Enumerated(msgspec.Struct):
            state: Literal["known"]

        body = b'{"items": [{"state": "Bearer first"}]}'
        secure.answers["/api/v1/pods"] = (200, {}, body)
        text = refusal(lambda: list_objects(api, ApiResource("", "v1", "pods", Enumerated)))
        assert "is not the requested list (Invalid enum value" in text
        assert "first" not in text

    @pytest.mark.parametrize(
        "line",
        [
            {"type": "Bearer first", "object": {
                "metadata": {"resourceVersion": "2", "name": "a"}, "state": "known",
            }},
            {"type": "ERROR", "object": {"code": 400, "message": "Bearer first"}},
            {"type": "ADDED", "object": {
                "metadata": {"resourceVersion": "2", "name": "a"}, "state": "Bearer first",
            }},
        ],
    )  # fmt: skip
    def test_nor_a_watch(
        self, secure: FakeApiServer, identity: TlsFiles, line: dict[str, Any]
    ) -> None:
        class Enumerated(msgspec.Struct):
            metadata: ObjectMeta
            state: Literal["known"]

        api = client(secure, User(token="first"), certificate_authority=str(identity.cert))
        watch = Reflector(
            api, ApiResource("", "v1", "pods", Enumerated), timings=WatchTimings(slowness=100)
        )
        secure.pods.put({"metadata": {"name": "first"}, "state": "known"})
        watch.start()
        try:
            watch.wait(PATIENCE)
            eventually("it is watched", lambda: len(secure.request_log) > 1)
            secure.say(json.dumps(line).encode())
            eventually("it is told", lambda: watch.fault is not None)
            assert not re.search("first", repr(watch.fault) + str(watch.fault))
        finally:
            watch.stop()

    @pytest.mark.parametrize("server", ["https://jane:secret@127.0.0.1:1", "jane:secret@x"])
    def test_nor_the_user_in_an_address(self, server: str) -> None:
        api = ClusterAccess(Cluster(server=server), User(), "a test")
        assert "secret" not in refusal(lambda: list_objects(ApiClient(api), POD_RESOURCE))

    def test_a_short_password_leaves_messages_readable(
        self, secure: FakeApiServer, identity: TlsFiles
    ) -> None:
        secure.tokens = None
        user = User(username="a", password="b")
        api = client(secure, user, certificate_authority=str(identity.cert))
        secure.answers["/api/v1/pods"] = (400, {}, b"a bad user:b")
        assert "400 to list pods: a bad user:… – check" in refusal(
            lambda: list_objects(api, POD_RESOURCE)
        )

    def test_secrets_are_not_shown(self) -> None:
        api = ClusterAccess(
            Cluster(server="https://x"), User(token="secret", password="secret"), "k"
        )
        assert "secret" not in repr(api)


@with_openssl
class TestPlugins:
    @pytest.fixture
    def secure(self, identity: TlsFiles) -> Iterator[FakeApiServer]:
        with fake_api_server(identity) as served:
            served.tokens = {"printed-1", "printed-2"}
            yield served

    @staticmethod
    def plugin(folder: Path, body: str, **entry: Any) -> User:
        """A program that counts how often it ran in a file beside it."""
        script = folder / "plugin"
        script.write_text(f"#!/bin/sh\ncd {folder}\necho >> ran\nn=$(wc -l < ran)\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        config = {
            "clusters": [{"name": "c", "cluster": {"server": "https://x"}}],
            "users": [{"name": "u", "user": {"exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "./plugin", "interactiveMode": "Never", **entry,
            }}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }  # fmt: skip
        (folder / "config").write_text(json.dumps(config))
        return load_kubeconfig([str(folder / "config")]).user

    @staticmethod
    def printing(status: str, version: str = "v1") -> str:
        head = f'"apiVersion":"client.authentication.k8s.io/{version}","kind":"ExecCredential"'
        return f'cat <<END\n{{{head},"status":{{{status}}}}}\nEND'

    def client_with(
        self, secure: FakeApiServer, identity: TlsFiles, user: User, folder: Path, **cluster: Any
    ) -> ApiClient:
        there = Cluster(server=secure.url, certificate_authority=str(identity.cert), **cluster)
        return ApiClient(
            ClusterAccess(there, user, "a test", folder=str(folder)), read_timeout=PATIENCE
        )

    def runs(self, folder: Path) -> int:
        return len((folder / "ran").read_text().splitlines())

    def test_what_it_prints_is_used_until_it_expires(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        user = self.plugin(
            tmp_path, self.printing(f'"token":"printed-$n","expirationTimestamp":"{later}"')
        )
        api = self.client_with(secure, identity, user, tmp_path)
        for _ in range(3):
            list_objects(api, POD_RESOURCE)
        assert self.runs(tmp_path) == 1

    def test_then_it_is_run_again(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        past = "2020-01-01T00:00:00Z"
        user = self.plugin(
            tmp_path, self.printing(f'"token":"printed-1","expirationTimestamp":"{past}"')
        )
        api = self.client_with(secure, identity, user, tmp_path)
        list_objects(api, POD_RESOURCE)
        once = self.runs(tmp_path)
        list_objects(api, POD_RESOURCE)
        assert self.runs(tmp_path) > once

    def test_and_when_the_server_no_longer_takes_it(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        user = self.plugin(tmp_path, self.printing('"token":"printed-$n"', "v1"))
        api = self.client_with(secure, identity, user, tmp_path)
        list_objects(api, POD_RESOURCE)
        secure.tokens = {"printed-2"}
        list_objects(api, POD_RESOURCE)
        assert self.runs(tmp_path) == 2

    def test_it_may_print_a_certificate(self, identity: TlsFiles, tmp_path: Path) -> None:
        jane = self_signed(tmp_path, "jane", "DNS:jane")
        pair = [json.dumps(path.read_text())[1:-1].replace("\\n", "\\\\n") for path in jane]
        user = self.plugin(
            tmp_path,
            self.printing(f'"clientCertificateData":"{pair[0]}","clientKeyData":"{pair[1]}"'),
        )
        with fake_api_server(identity, clients=jane.cert) as server:
            assert (
                list_objects(self.client_with(server, identity, user, tmp_path), POD_RESOURCE).items
                == []
            )

    def test_it_is_told_what_it_needs(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        body = 'echo "$KUBERNETES_EXEC_INFO" > info; echo "$PLACE" > place\n'
        user = self.plugin(
            tmp_path, body + self.printing('"token":"printed-1"'),
            env=[{"name": "PLACE", "value": "here"}], provideClusterInfo=True,
        )  # fmt: skip
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"realm": "x"}}
        list_objects(
            self.client_with(secure, identity, user, tmp_path, extensions=(extension,)),
            POD_RESOURCE,
        )
        info = json.loads((tmp_path / "info").read_text())
        assert info["spec"]["interactive"] is False
        assert info["spec"]["cluster"]["server"] == secure.url
        assert info["spec"]["cluster"]["config"] == {"realm": "x"}
        assert (tmp_path / "place").read_text() == "here\n"

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("echo you are logged out >&2; exit 3", "failed (3): you are logged out"),
            ("echo hello", "printed no ExecCredential"),
            (printing('"token":"x"', "v1beta1"), "v1beta1, not ExecCredential of"),
            (printing(""), "neither a token nor a certificate"),
            (printing('"clientCertificateData":"x"'), "without its key"),
        ],
    )  # fmt: skip
    def test_what_goes_wrong_with_it_is_reported(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path, body: str, message: str
    ) -> None:
        user = self.plugin(tmp_path, body)
        text = refusal(
            lambda: list_objects(self.client_with(secure, identity, user, tmp_path), POD_RESOURCE)
        )
        assert message in text
        assert secure.request_log == []

    def test_its_complaint_holds_no_credential(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        key = "-----BEGIN PRIVATE KEY-----\nMIIsecret\nMIIsecret\n-----END PRIVATE KEY-----"
        past = "2020-01-01T00:00:00Z"
        answer = self.printing(f'"token":"printed-1","expirationTimestamp":"{past}"')
        filler = "x" * 295
        complaint = f"echo 'printed-1 {key} eyJhbGciOiJub25l.secret printed-1{filler}' >&2; exit 1"
        user = self.plugin(tmp_path, f"[ $n = 1 ] || {{ {complaint}\n}}\n{answer}")
        api = self.client_with(secure, identity, user, tmp_path)
        text = refusal(lambda: list_objects(api, POD_RESOURCE))
        assert f"… … …{filler}" in text
        assert not re.search("secret|printed|inted-1|ted-1", text)

    def test_a_token_that_no_header_may_have_is_refused_and_not_quoted(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        user = self.plugin(tmp_path, self.printing('"token":"sec\\\\nret"'))
        text = refusal(
            lambda: list_objects(self.client_with(secure, identity, user, tmp_path), POD_RESOURCE)
        )
        assert "this is not a token" in text
        assert "sec" not in text

    def test_one_that_is_not_there_comes_with_its_own_hint(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        user = self.plugin(tmp_path, "", command="no-such-plugin", installHint="brew install it")
        text = refusal(
            lambda: list_objects(self.client_with(secure, identity, user, tmp_path), POD_RESOURCE)
        )
        assert "does not start" in text
        assert text.endswith("brew install it")

    def test_one_of_a_version_that_is_gone_is_not_run(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        user = self.plugin(tmp_path, "", apiVersion="client.authentication.k8s.io/v1alpha1")
        assert "upgrade the plugin" in refusal(
            lambda: list_objects(self.client_with(secure, identity, user, tmp_path), POD_RESOURCE)
        )
        assert not (tmp_path / "ran").exists()

    def test_one_that_must_ask_somebody_needs_a_terminal(
        self, secure: FakeApiServer, identity: TlsFiles, tmp_path: Path
    ) -> None:
        user = self.plugin(tmp_path, "", interactiveMode="Always")
        with open(os.devnull) as nobody, pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", nobody)
            assert "terminal" in refusal(
                lambda: list_objects(
                    self.client_with(secure, identity, user, tmp_path), POD_RESOURCE
                )
            )


class TestProxies:
    def proxy(self, server: str, **environment: str) -> str | None:
        return proxy_of(ClusterAccess(Cluster(server=server), User(), "a test"), environment)

    def test_the_kubeconfig_comes_before_the_environment(self) -> None:
        api = ClusterAccess(
            Cluster(server="https://api", proxy_url="http://mine:3128"), User(), "k"
        )
        assert proxy_of(api, {"HTTPS_PROXY": "http://other"}) == "http://mine:3128"

    @pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
    def test_the_environment_names_one(self, name: str) -> None:
        assert self.proxy("https://api", **{name: "proxy:3128"}) == "http://proxy:3128"
        assert self.proxy("http://api", **{name: "proxy:3128"}) is None

    @pytest.mark.parametrize(
        ("server", "exceptions", "direct"),
        [
            ("https://10.0.0.1:6443", "10.0.0.0/8", True),
            ("https://10.0.0.1:6443", "192.168.0.0/16, 10.0.0.1", True),
            ("https://11.0.0.1", "10.0.0.0/8", False),
            ("https://[fd00::1]:6443", "fd00::/8", True),
            ("https://api.corp.example", "corp.example", True),
            ("https://api.corp.example", ".corp.example", True),
            ("https://api.corp.example", "*.corp.example", True),
            ("https://notcorp.example", "corp.example", False),
            ("https://api.corp.example:6443", "corp.example:6443", True),
            ("https://api.corp.example:6443", "corp.example:443", False),
            ("https://api", "*", True),
            ("https://api", "", False),
            ("https://127.0.0.1:6443", "", True),
            ("https://localhost", "", True),
        ],
    )
    def test_some_servers_are_asked_directly(
        self, server: str, exceptions: str, direct: bool
    ) -> None:
        proxy = self.proxy(server, HTTPS_PROXY="http://proxy", NO_PROXY=exceptions)
        assert (proxy is None) == direct

    @pytest.mark.parametrize("url", ["socks5://p:1080", "://", "http://"])
    def test_what_cannot_be_used_is_refused(self, url: str) -> None:
        api = ClusterAccess(Cluster(server="https://api", proxy_url=url), User(), "k")
        assert "proxies of http:// and https:// can" in refusal(lambda: proxy_of(api, {}))

    @with_openssl
    def test_a_request_goes_through_it(self, identity: TlsFiles) -> None:
        with fake_api_server(identity) as server, tunnel() as (url, heads):
            through = client(
                server, proxy_url=url.replace("//", "//me:pass@"),
                certificate_authority=str(identity.cert),
            )  # fmt: skip
            assert list_objects(through, POD_RESOURCE).items == []
            through.close()
        (head,) = heads
        assert head.startswith(f"CONNECT {server.url.removeprefix('https://')} ")
        assert base64.b64encode(b"me:pass").decode() in head

    @with_openssl
    def test_one_that_is_not_there_is_reported(self, identity: TlsFiles) -> None:
        with fake_api_server(identity) as server:
            through = client(server, proxy_url="http://127.0.0.1:1")
            assert "the proxy refuses the connection" in refusal(
                lambda: list_objects(through, POD_RESOURCE)
            )


@contextmanager
def tunnel() -> Iterator[tuple[str, list[str]]]:
    """A proxy for one connection, and what it was asked."""
    heads: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            here, _ = listening.accept()
            head = here.recv(4096).decode()
            heads.append(head)
            host, _, port = head.split()[1].partition(":")
            there = socket.create_connection((host, int(port)))
            here.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=copy, args=(there, here))
            back.start()
            copy(here, there)
            back.join()
            here.close()
            there.close()

        def copy(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", heads
        thread.join()


class TestKubeconfigs:
    CONFIG = """
apiVersion: v1
kind: Config
current-context: dev
clusters:
- name: one
  cluster: {server: https://one:6443, certificate-authority: pki/ca.crt, proxy-url: http://p:1}
- name: two
  cluster: {server: https://two:6443, tls-server-name: kubernetes}
users:
- name: jane
  user: {tokenFile: token, client-certificate: /abs/jane.crt, client-key: jane.key}
contexts:
- name: dev
  context: {cluster: one, user: jane, namespace: shop}
- name: prod
  context: {cluster: two}
"""

    def put(self, path: Path, text: str) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def test_the_current_context(self, tmp_path: Path) -> None:
        file = self.put(tmp_path / "config", self.CONFIG)
        found = load_kubeconfig([file])
        assert found.cluster.server == "https://one:6443"
        assert found.cluster.proxy_url == "http://p:1"
        assert found.namespace == "shop"
        assert found.origin == f"context dev of {file}"

    def test_paths_are_relative_to_the_file(self, tmp_path: Path) -> None:
        found = load_kubeconfig([self.put(tmp_path / "config", self.CONFIG)])
        assert found.cluster.certificate_authority == f"{tmp_path}/pki/ca.crt"
        assert found.user.token_file == f"{tmp_path}/token"
        assert found.user.client_certificate == "/abs/jane.crt"
        assert found.user.client_key == f"{tmp_path}/jane.key"

    def test_a_context_by_name(self, tmp_path: Path) -> None:
        found = load_kubeconfig([self.put(tmp_path / "config", self.CONFIG)], "prod")
        assert (found.cluster.tls_server_name, found.namespace) == ("kubernetes", "default")

    def test_the_first_file_that_has_a_name_decides_about_it(self, tmp_path: Path) -> None:
        first = self.put(
            tmp_path / "a/config",
            "current-context: prod\nclusters: [{name: one, cluster: {server: https://mine}}]\n",
        )
        second = self.put(tmp_path / "b/config", self.CONFIG)
        both = [str(tmp_path / "none"), first, second]
        assert load_kubeconfig(both).cluster.server == "https://two:6443"
        found = load_kubeconfig(both, "dev")
        assert (found.cluster.server, found.cluster.proxy_url) == ("https://mine", None)
        assert found.user.token_file == f"{tmp_path}/b/token"

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("current-context: dev", "", "give --context, one of dev, prod"),
            ("current-context: dev", "current-context: x", "there is no context x"),
            ("cluster: one,", "cluster: three,", "of cluster three, which does not exist"),
            ("user: jane,", "user: joe,", "of user joe, which does not exist"),
            ("server: https://one:6443, ", "", "cluster one has no server"),
            ("tokenFile: token", "tokenFile: [1]", "expected a string, got a list"),
            ("- name: jane", "- nome: jane", "required, but missing"),
            ("clusters:", "clusters: {", "config:"),
            ("{tokenFile: token, ", "{auth-provider: {name: gcp}, ", "with an exec plugin"),
        ],
    )
    def test_what_is_wrong_is_reported_with_its_place(
        self, tmp_path: Path, old: str, new: str, message: str
    ) -> None:
        file = self.put(tmp_path / "config", self.CONFIG.replace(old, new))
        text = refusal(lambda: load_kubeconfig([file]))
        assert file in text
        assert message in text

    def test_a_wrong_field_has_a_line(self, tmp_path: Path) -> None:
        text = self.CONFIG.replace("tokenFile: token", "tokenFile: [1]")
        file = self.put(tmp_path / "config", text)
        with pytest.raises(InputError) as caught:
            load_kubeconfig([file])
        assert caught.value.line == 12

    def test_none_at_all(self, tmp_path: Path) -> None:
        assert "set KUBECONFIG" in refusal(cluster_access)
        empty = self.put(tmp_path / "config", "\n")
        assert "no kubeconfig" in refusal(lambda: load_kubeconfig([empty]))

    def test_a_file_that_is_no_kubeconfig_has_no_contexts(self, tmp_path: Path) -> None:
        file = self.put(tmp_path / "pod.yaml", "apiVersion: v1\nkind: Pod\n")
        text = refusal(lambda: load_kubeconfig([file]))
        assert "there are no contexts: give another file with --kubeconfig" in text

    def test_the_environment_names_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", f"/none:{self.put(tmp_path / 'k', self.CONFIG)}")
        assert cluster_access().cluster.server == "https://one:6443"

    def test_else_it_is_the_one_at_home(self, tmp_path: Path) -> None:
        self.put(tmp_path / "home/.kube/config", self.CONFIG)
        assert cluster_access("prod").cluster.server == "https://two:6443"


class TestInACluster:
    def folder(self, path: Path) -> str:
        path.mkdir()
        for name, text in {"token": "first", "namespace": "kube-system\n", "ca.crt": ""}.items():
            (path / name).write_text(text)
        return str(path)

    @pytest.mark.parametrize(
        ("host", "url"),
        [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")],
    )
    def test_a_pod_finds_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str
    ) -> None:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        found = in_cluster(self.folder(tmp_path / "sa"))
        assert found.cluster.server == url
        assert found.user.token_file == f"{tmp_path}/sa/token"
        assert found.namespace == "kube-system"

    def test_without_a_token_it_says_what_is_missing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        assert "automountServiceAccountToken" in refusal(lambda: in_cluster(str(tmp_path)))

    def test_elsewhere_there_is_none(self) -> None:
        assert "not inside a cluster" in refusal(in_cluster)
