"""Where a cluster's API server is, whom to trust there, and who asks."""

import os
from typing import Final

import msgspec

from memqos.errors import InputError

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"


class EnvVariable(msgspec.Struct, frozen=True):
    """One entry of an exec plugin's environment."""

    name: str
    value: str


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """A program that prints credentials."""

    command: str
    api_version: str = ""
    args: tuple[str, ...] | None = None
    env: tuple[EnvVariable, ...] | None = None
    install_hint: str | None = None
    interactive_mode: str | None = None
    provide_cluster_info: bool = False


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """Who asks, as a kubeconfig says it. It shows nothing of itself: most of it is secret."""

    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    username: str | None = None
    password: str | None = None
    exec: ExecPlugin | None = None
    auth_provider: dict[str, object] | None = None
    impersonate: str | None = msgspec.field(default=None, name="as")
    impersonate_uid: str | None = msgspec.field(default=None, name="as-uid")
    impersonate_groups: tuple[str, ...] | None = msgspec.field(default=None, name="as-groups")

    def __repr__(self) -> str:
        return "User(…)"


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """Where the server is, and whom to trust, as a kubeconfig says it."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    disable_compression: bool = False
    extensions: tuple[dict[str, object], ...] | None = None


class ClusterAccess(msgspec.Struct, frozen=True):
    """All it takes to ask an API server."""

    cluster: Cluster
    user: User
    origin: str
    """What a person would call it: a context and its file, or this pod's service account."""
    namespace: str = "default"
    folder: str = ""
    """What an exec plugin's relative path is relative to."""


def cluster_access(context: str | None = None) -> ClusterAccess:
    """The way into the cluster that is meant: of a context, of the current one, or of this pod."""
    from memqos.host.apiserver.kubeconfig import kubeconfig_paths, load_kubeconfig

    named = kubeconfig_paths()
    if context is None and not any(map(os.path.exists, named)) and os.environ.get(_HOST):
        return in_cluster()
    return load_kubeconfig(named, context)


def in_cluster(folder: str = SERVICE_ACCOUNT) -> ClusterAccess:
    """The way a pod has into its own cluster."""
    host, port = os.environ.get(_HOST), os.environ.get(_PORT)
    token = f"{folder}/token"
    if not host or not port:
        raise InputError(
            f"this is not inside a cluster: {_HOST} is not set",
            hint="name a context of a kubeconfig with --context",
        )
    if not os.path.exists(token):
        raise InputError(
            "there is no token of a service account",
            file=token,
            hint="the pod needs automountServiceAccountToken: true",
        )
    return ClusterAccess(
        Cluster(
            f"https://{f'[{host}]' if ':' in host else host}:{port}",
            certificate_authority=f"{folder}/ca.crt",
        ),
        User(token_file=token),
        "this pod's service account",
        _namespace(f"{folder}/namespace"),
    )


def _namespace(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read().strip() or "default"
    except OSError:
        return "default"
