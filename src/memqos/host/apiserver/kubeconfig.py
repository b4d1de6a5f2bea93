"""Find kubeconfig files, merge them, and select a context.

As in kubectl, the first file that has a cluster, user or context of a name provides all of it, and
a path in a file is relative to that file.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from memqos.errors import InputError, os_reason
from memqos.manifests.documents import Document, decoding_error, read_documents

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"


class EnvVariable(msgspec.Struct, frozen=True):
    """One entry of an exec plugin's environment."""

    name: str
    value: str


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A program that prints credentials."""

    command: str
    api_version: str = ""
    args: tuple[str, ...] | None = None
    env: tuple[EnvVariable, ...] | None = None
    install_hint: str | None = None
    interactive_mode: str | None = None
    provide_cluster_info: bool = False


class User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A user of a kubeconfig. Its repr shows nothing of it: most of it is secret."""

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


class Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A cluster of a kubeconfig: the server's address, and the CA to trust."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    disable_compression: bool = False
    extensions: tuple[dict[str, object], ...] | None = None


class ClusterAccess(msgspec.Struct, frozen=True):
    """All it takes to access an API server."""

    cluster: Cluster
    user: User
    origin: str
    """What messages call it: a context and its file, or this pod's service account."""
    namespace: str = "default"
    folder: str = ""
    """The folder that an exec plugin's path is relative to."""


def cluster_access(context: str | None = None, file: str | None = None) -> ClusterAccess:
    """Access to a cluster: of a context, of the current context, or of this pod.

    With `file` it is the only kubeconfig, as with kubectl's --kubeconfig.
    """
    if file is not None:
        return load_kubeconfig([file], context)
    paths = kubeconfig_paths()
    if context is None and not any(map(os.path.exists, paths)) and os.environ.get(_HOST):
        return in_cluster()
    return load_kubeconfig(paths, context)


def in_cluster(folder: str = SERVICE_ACCOUNT) -> ClusterAccess:
    """The access that a pod has to its own cluster."""
    host, port = os.environ.get(_HOST), os.environ.get(_PORT)
    token = f"{folder}/token"
    if not host or not port:
        raise InputError(
            f"this is not inside a cluster: {_HOST} is not set",
            hint="give a context of a kubeconfig with --context",
        )
    if not os.path.exists(token):
        raise InputError(
            "there is no token of a service account",
            file=token,
            hint="the pod needs automountServiceAccountToken: true",
        )
    return ClusterAccess(
        Cluster(
            server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
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


DEFAULT_FILE: Final = "~/.kube/config"
_HOW: Final = "kubectl config view shows what there is"
_SHOWN: Final = 5


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: Cluster


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context


class _Config(msgspec.Struct, frozen=True, rename="kebab"):
    """One file."""

    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None
    current_context: str | None = None


class _File(msgspec.Struct, frozen=True):
    path: str
    config: _Config


_Named = TypeVar("_Named", _NamedCluster, _NamedUser, _NamedContext)


def kubeconfig_paths() -> list[str]:
    """The files that $KUBECONFIG names, else the one in the home folder."""
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    return list(dict.fromkeys(named)) or [os.path.expanduser(DEFAULT_FILE)]


def load_kubeconfig(paths: Sequence[str], context: str | None = None) -> ClusterAccess:
    """Access to the cluster of a context in these files, by default of the current one."""
    found = [_File(path, _config(document)) for path, document in _documents(paths)]
    if not found:
        raise InputError(
            "no kubeconfig",
            file=":".join(paths),
            hint="give --kubeconfig, set KUBECONFIG, or run where kubectl works",
        )
    name = context or next(
        (each.config.current_context for each in found if each.config.current_context), None
    )
    if not name:
        raise InputError(
            "no context is the current one",
            file=":".join(each.path for each in found),
            hint=_context_hint(_names(found)),
        )
    return _select_context(found, name)


def context_names(file: str | None = None) -> list[str]:
    """The contexts of a kubeconfig, by default of those that kubectl would read."""
    paths = kubeconfig_paths() if file is None else [file]
    return _names([_File(path, _config(document)) for path, document in _documents(paths)])


def _select_context(found: Sequence[_File], name: str) -> ClusterAccess:
    file, chosen = _first([(each, each.config.contexts) for each in found], name)
    if file is None or chosen is None:
        raise InputError(
            f"there is no context {name}",
            file=":".join(each.path for each in found),
            hint=_context_hint(_names(found)),
        )
    of_context = chosen.context
    where, named_cluster = _first(
        [(each, each.config.clusters) for each in found], of_context.cluster
    )
    if where is None or named_cluster is None:
        what = (
            f"context {name} is of cluster {of_context.cluster or '(none)'}, which does not exist"
        )
        raise InputError(what, file=file.path, hint=_HOW)
    cluster = _resolve_paths(named_cluster.cluster, where.path, ("certificate_authority",))
    if not cluster.server:
        raise InputError(f"cluster {named_cluster.name} has no server", file=where.path)
    user, folder = User(), ""
    if of_context.user:
        holder, named_user = _first([(each, each.config.users) for each in found], of_context.user)
        if holder is None or named_user is None:
            what = f"context {name} is of user {of_context.user}, which does not exist"
            raise InputError(what, file=file.path, hint=_HOW)
        folder = os.path.dirname(os.path.abspath(holder.path))
        user = _check_user(named_user, holder.path)
        user = _resolve_paths(user, holder.path, ("token_file", "client_certificate", "client_key"))
    return ClusterAccess(
        cluster, user, f"context {name} of {file.path}", of_context.namespace or "default", folder
    )


def _documents(paths: Iterable[str]) -> Iterator[tuple[str, Document]]:
    for path in paths:
        try:
            with open(path, "rb") as opened:
                data = opened.read()
        except FileNotFoundError:
            continue
        except OSError as error:
            what = os_reason(error)
            raise InputError(what, file=path, hint="see KUBECONFIG") from None
        if data.strip():
            document = next(iter(read_documents(data, path)))
            if isinstance(document, InputError):
                raise document
            yield path, document


def _config(document: Document) -> _Config:
    try:
        return msgspec.convert(document.data, _Config)
    except msgspec.ValidationError as error:
        raise decoding_error(error, document.data, document) from None


def _first(
    groups: Iterable[tuple[_File, tuple[_Named, ...] | None]], name: str
) -> tuple[_File, _Named] | tuple[None, None]:
    for file, group in groups:
        for each in group or ():
            if each.name == name:
                return file, each
    return None, None


def _names(found: Iterable[_File]) -> list[str]:
    return list(dict.fromkeys(each.name for file in found for each in file.config.contexts or ()))


def _context_hint(names: Sequence[str]) -> str:
    if not names:
        return "there are no contexts: give another file with --kubeconfig"
    shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
    return f"give --context, one of {shown}"


_Paths = TypeVar("_Paths", Cluster, User)


def _resolve_paths(entry: _Paths, file: str, fields: Iterable[str]) -> _Paths:
    """The same entry with absolute paths."""
    folder = os.path.dirname(os.path.abspath(file))
    changes = {
        field: os.path.join(folder, value) for field in fields if (value := getattr(entry, field))
    }
    return msgspec.structs.replace(entry, **changes)


def _check_user(named: _NamedUser, file: str) -> User:
    user = named.user or User()
    if user.auth_provider is not None and user.exec is None and not (user.token or user.token_file):
        raise InputError(
            f"user {named.name} has an auth-provider, which Kubernetes removed in 1.26",
            file=file,
            hint="use the provider's tool to replace it with an exec plugin",
        )
    return user
