"""The client's credentials: tokens and certificates, always the current ones.

A token in a file is read for every request, because kubelets replace those of pods every hour and
the API server flags requests with an old one (Kubernetes docs, "Managing Service Accounts"). A
plugin runs again when its credential has expired or was refused. Keys are never written to a disk:
Python's TLS reads certificates from files only, so it gets them in a memfd. Every credential that
was ever in use is remembered, so that it can be redacted from errors.
"""

import base64
import binascii
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from memqos.errors import InputError, MemqosError, os_reason
from memqos.host.apiserver.exec_plugin import ExecCredential, run_exec_plugin
from memqos.host.apiserver.kubeconfig import ClusterAccess
from memqos.host.credential_files import (
    check_token,
    describe_tls_error,
    load_certificate,
    read_token,
)
from memqos.host.file_version import FileVersion, file_version

if TYPE_CHECKING:
    import ssl

_NO_VALUE: Final = re.compile(r"[\x00-\x1f\x7f]")
"""Not allowed in the value of a header. Checked here: Python's error would quote the value."""

_MOST_SECRETS: Final = 64
"""Remembered secrets. Kubelets replace a token every hour, and an old one soon expires."""
_WORD: Final = 4
"""A shorter secret is redacted only as a whole word: else most of a message would be."""
_SHAPES: Final = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"\beyJ[\w-]{8,}(?:\.[\w-]*)*",
    r"(?<=//)[^\s/@]+(?=@)",
)
"""Secrets recognised by their form: keys, JSON web tokens, and the user in an address."""

TlsFingerprint = tuple[object, ...]
"""Equal as long as the certificates are the same."""


class Secrets:
    """Credentials that are or were in use, to be redacted in every form that errors may quote."""

    def __init__(self) -> None:
        self._known: tuple[str, ...] = ()
        self._pattern = _pattern(())

    def add(self, *secrets: str | None) -> None:
        """Remember secrets; beyond the bound the oldest are dropped."""
        new = [each for each in secrets if each and each not in self._known]
        if new:  # replaced, not changed: another thread may be reading them
            self._known = (*self._known, *new)[-_MOST_SECRETS:]
            self._pattern = _pattern(self._known)

    def add_pair(self, user: str, password: str) -> str:
        """Remember a user's password; the value of a header of basic authentication."""
        header = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.add(password, header)
        return header

    def redact(self, text: str) -> str:
        """The text without secrets."""
        return self._pattern.sub("…", text)

    def redact_error(self, error: MemqosError) -> None:
        """Remove secrets from an error."""
        error.what = self.redact(error.what)
        error.args = (error.what,)
        error.hint = error.hint and self.redact(error.hint)
        if isinstance(error, InputError):
            error.file = error.file and self.redact(error.file)


class ApiCredentials:
    """The credentials of one user of one cluster; threads may share them."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._lock = Lock()
        self._printed: ExecCredential | None = None
        self.secrets = Secrets()
        self.secrets.add(access.user.password, access.user.token, access.user.client_key_data)

    @property
    def is_renewable(self) -> bool:
        """Whether reading them again could give other credentials than those refused."""
        return self._access.user.exec is not None or self._access.user.token_file is not None

    def headers(self) -> dict[str, str]:
        """The headers that authenticate the client; none over a connection without TLS."""
        if not self._is_secure:
            return {}
        user = self._access.user
        headers = {}
        if token := self._token():
            self.secrets.add(token)
            headers["Authorization"] = f"Bearer {token}"
        elif user.username:
            pair = self.secrets.add_pair(user.username, user.password or "")
            headers["Authorization"] = f"Basic {pair}"
        if user.impersonate:
            headers["Impersonate-User"] = self._value("as", user.impersonate)
        if user.impersonate_uid:
            headers["Impersonate-Uid"] = self._value("as-uid", user.impersonate_uid)
        return headers

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups to impersonate; a header each."""
        groups = (self._access.user.impersonate_groups or ()) if self._is_secure else ()
        return tuple([self._value("as-groups", group) for group in groups])

    def bearer_token(self) -> str | None:
        """The user's token, to show to another server over TLS; None where there is none."""
        token = self._token()
        self.secrets.add(token)
        return token

    def invalidate(self) -> None:
        """The server refused them: run a plugin again the next time."""
        with self._lock:
            self._printed = None

    def tls_fingerprint(self) -> TlsFingerprint:
        """The versions of the certificates that TLS uses now."""
        cluster, user = self._access.cluster, self._access.user
        files = (cluster.certificate_authority, user.client_certificate, user.client_key)
        printed = self._from_plugin()
        return (
            *(_version(file) for file in files if file),
            None if printed is None else printed.client_certificate_data,
        )

    def tls_context(self) -> "ssl.SSLContext":
        """The CA to trust, and the client certificate."""
        import ssl

        from memqos.host.apiserver.responses import tls_context

        cluster = self._access.cluster
        try:
            context = tls_context(
                cafile=cluster.certificate_authority
                if cluster.certificate_authority_data is None
                else None,
                cadata=None
                if cluster.certificate_authority_data is None
                else self._decode_field("certificate-authority-data").decode("ascii", "replace"),
            )
        except OSError as error:
            raise InputError(
                f"no certificate could be read ({describe_tls_error(error)})",
                file=cluster.certificate_authority or self._access.origin,
                field=None if cluster.certificate_authority else "certificate-authority-data",
                hint="it must be in PEM",
            ) from None
        if cluster.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._load_certificate(context)
        return context

    @property
    def _is_secure(self) -> bool:
        return self._access.cluster.server.startswith("https://")

    def _token(self) -> str | None:
        user = self._access.user
        if user.token_file is not None:
            return read_token(user.token_file)
        if user.token:
            return check_token(user.token, self._access.origin, "token")
        printed = self._from_plugin()
        if printed is None or not printed.token:
            return None
        return check_token(printed.token, self._access.origin, "exec")

    def _value(self, field: str, text: str) -> str:
        """A name as the value of a header: UTF-8, which http.client writes as Latin-1."""
        if _NO_VALUE.search(text):
            what = "a name with a control character in it"
            raise InputError(what, file=self._access.origin, field=field, hint="write it again")
        return text.encode("utf-8", "replace").decode("latin-1")

    def _from_plugin(self) -> ExecCredential | None:
        if self._access.user.exec is None or not self._is_secure:
            return None
        with self._lock:
            if self._printed is None or not self._printed.is_good(datetime.now(UTC)):
                self._printed = run_exec_plugin(self._access, self.secrets.redact)
                self.secrets.add(self._printed.token, self._printed.client_key_data)
            return self._printed

    def _load_certificate(self, context: "ssl.SSLContext") -> None:
        user = self._access.user
        printed = self._from_plugin()
        if printed is not None and printed.client_certificate_data and printed.client_key_data:
            pair = printed.client_certificate_data.encode(), printed.client_key_data.encode()
        elif user.client_certificate_data or user.client_certificate:
            pair = (
                self._content("client-certificate", user.client_certificate),
                self._content("client-key", user.client_key or user.client_certificate),
            )
        else:
            return
        try:
            with _as_file(b"\n".join(pair)) as path:
                load_certificate(context, path)
        except (OSError, ValueError) as error:
            raise InputError(
                f"no certificate with its key could be read ({describe_tls_error(error)})",
                file=user.client_certificate or self._access.origin,
                hint="both must be in PEM, the key without passphrase",
            ) from None

    def _content(self, field: str, file: str | None) -> bytes:
        """A certificate or key in a kubeconfig, else the content of its file."""
        if getattr(self._access.user, f"{field}-data".replace("-", "_")):
            return self._decode_field(f"{field}-data")
        if file is None:
            what = "a client certificate without its key"
            raise InputError(what, file=self._access.origin, field="client-key")
        return _read(file)

    def _decode_field(self, field: str) -> bytes:
        name = field.replace("-", "_")
        holder = self._access.cluster if "authority" in field else self._access.user
        try:
            return base64.b64decode("".join(getattr(holder, name).split()), validate=True)
        except (binascii.Error, ValueError):
            raise InputError("not base64", file=self._access.origin, field=field) from None


def _pattern(secrets: tuple[str, ...]) -> re.Pattern[str]:
    """Finds secrets as they are, quoted, and in base64; the longest first."""
    forms = {form for secret in secrets for show in _FORMS for form in [show(secret)]}
    known = [
        re.escape(form) if len(form) >= _WORD else rf"(?<!\w){re.escape(form)}(?!\w)"
        for form in sorted(forms, key=len, reverse=True)
    ]
    return re.compile("|".join([*known, *_SHAPES]), re.DOTALL)


_FORMS: Final[tuple[Callable[[str], str], ...]] = (
    str,
    lambda secret: repr(secret)[1:-1],
    lambda secret: ascii(secret)[1:-1],
    lambda secret: quote(secret, safe=""),
    lambda secret: base64.b64encode(secret.encode("utf-8", "replace")).decode(),
)


def _read(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise InputError(os_reason(error), file=file) from None


def _version(file: str) -> tuple[str, FileVersion | None]:
    try:
        return file, file_version(file)
    except OSError:
        return file, None


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    handle = os.memfd_create("memqos", os.MFD_CLOEXEC)
    try:
        os.write(handle, content)
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
