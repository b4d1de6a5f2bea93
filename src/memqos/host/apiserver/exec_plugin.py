"""Exec plugins: programs that print credentials, by the API client.authentication.k8s.io."""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from memqos.errors import InputError, Unreachable
from memqos.host.apiserver.kubeconfig import ClusterAccess, ExecPlugin

_GROUP: Final = "client.authentication.k8s.io"
_VERSIONS: Final = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_SECONDS: Final = 60
_STDERR_SHOWN: Final = 300
_CLUSTER_CONFIG: Final = f"{_GROUP}/exec"
_CLUSTER_FIELDS: Final = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "proxy-url",
)


class ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    """The credential that a plugin printed. Its repr shows nothing of it."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None

    def __repr__(self) -> str:
        return "Credential(…)"

    def is_good(self, now: datetime) -> bool:
        """Whether it has not expired."""
        until = self.expiration_timestamp
        return until is None or now < (until if until.tzinfo else until.replace(tzinfo=UTC))


class _Printed(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: ExecCredential | None = None


def run_exec_plugin(access: ClusterAccess, redact: Callable[[str], str]) -> ExecCredential:
    """Run the plugin of a user and decode what it prints; its errors are redacted."""
    plugin = access.user.exec
    assert plugin is not None
    if plugin.api_version not in _VERSIONS:
        raise InputError(
            f"the exec plugin {plugin.command} uses {plugin.api_version or 'no version'}",
            file=access.origin,
            hint=f"memqos knows {' and '.join(_VERSIONS)}: upgrade the plugin",
        )
    return _decode_printed(plugin, access, _run(plugin, access, redact))


def _run(plugin: ExecPlugin, access: ClusterAccess, redact: Callable[[str], str]) -> bytes:
    import subprocess

    interactive = _is_interactive(plugin, access)
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = _cluster_info(access)
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environment = {
        **os.environ,
        **{each.name: each.value for each in plugin.env or ()},
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
    }
    command = plugin.command
    if os.sep in command:
        command = os.path.join(access.folder, command)
    try:
        done = subprocess.run(
            [command, *(plugin.args or ())],
            env=environment,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,
            timeout=None if interactive else _SECONDS,
            check=False,
        )
    except OSError as error:
        hint = " ".join((plugin.install_hint or "").split()) or "install it, or put it on the PATH"
        what = f"the exec plugin {plugin.command} does not start: {error.strerror}"
        raise InputError(what.lower(), file=access.origin, hint=hint) from None
    except subprocess.TimeoutExpired:
        what = f"the exec plugin {plugin.command} printed nothing within {_SECONDS} s"
        raise Unreachable(what, hint="run it by hand: it may wait for input") from None
    if done.returncode:
        # Redact before cutting: a part of a secret would not be recognised.
        complaint = redact(" ".join((done.stderr or b"").decode("utf-8", "replace").split()))[
            -_STDERR_SHOWN:
        ]
        raise Unreachable(
            f"the exec plugin {plugin.command} failed ({done.returncode})"
            + (f": {complaint}" if complaint else ""),
            hint="run it by hand, or log in again",
        )
    return done.stdout


def _is_interactive(plugin: ExecPlugin, access: ClusterAccess) -> bool:
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not at_terminal:
        raise InputError(
            f"the exec plugin {plugin.command} needs input, and there is no terminal",
            file=access.origin,
            hint="run memqos at a terminal",
        )
    return at_terminal and plugin.interactive_mode != "Never"


def _cluster_info(access: ClusterAccess) -> dict[str, Any]:
    """The cluster for the plugin's environment, with the part of the kubeconfig meant for it."""
    cluster = msgspec.to_builtins(access.cluster)
    own = next(
        (each for each in access.cluster.extensions or () if each.get("name") == _CLUSTER_CONFIG),
        {},
    )
    info = {name: cluster[name] for name in _CLUSTER_FIELDS if cluster.get(name)}
    return info | ({"config": own["extension"]} if "extension" in own else {})


def _decode_printed(plugin: ExecPlugin, access: ClusterAccess, printed: bytes) -> ExecCredential:
    def plugin_error(what: str) -> InputError:
        return InputError(
            f"the exec plugin {plugin.command} {what}", file=access.origin, hint="run it by hand"
        )

    try:
        answer = msgspec.json.decode(printed, type=_Printed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise plugin_error("printed no ExecCredential") from None
    if answer.kind != "ExecCredential" or answer.api_version != plugin.api_version:
        what = f"{answer.kind or 'no kind'} of {answer.api_version or 'no version'}"
        raise plugin_error(f"printed {what}, not ExecCredential of {plugin.api_version}")
    status = answer.status
    if status is None or not (status.token or status.client_certificate_data):
        raise plugin_error("printed neither a token nor a certificate")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise plugin_error(
            "printed a certificate without its key, or a key without its certificate"
        )
    return status
