"""Credentials in files: bearer tokens, and certificates with their keys for TLS."""

import re
from typing import TYPE_CHECKING, Final

from memqos.errors import InputError, os_reason

if TYPE_CHECKING:
    import ssl

_LONGEST_TOKEN: Final = 1 << 16
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


def is_token(text: str) -> bool:
    """Whether a text is one word of visible ASCII, as a header takes it."""
    return _TOKEN.fullmatch(text) is not None


def check_token(text: str, file: str, field: str | None = None) -> str:
    """A token from a file, or from a field of it; InputError where it is none."""
    if not is_token(text):
        raise InputError(
            "this is not a token",
            file=file,
            field=field,
            hint="a token is one word of visible ASCII, without spaces or line ends",
        )
    return text


def read_token(file: str) -> str:
    """The token in a file."""
    try:
        with open(file, encoding="ascii", errors="replace") as opened:
            token = opened.read(_LONGEST_TOKEN).strip()
    except OSError as error:
        raise InputError(os_reason(error), file=file) from None
    return check_token(token, file)


def load_certificate(context: "ssl.SSLContext", chain: str, key: str | None = None) -> None:
    """Load a certificate chain and its key; an encrypted key is refused."""
    # Without a password OpenSSL asks on the terminal for that of an encrypted key, and waits
    # (pem_password_cb(3)).
    context.load_cert_chain(chain, key, password="")


def client_context(ca_file: str | None = None, ca_data: str | None = None) -> "ssl.SSLContext":
    """A context that verifies servers by these CAs, or the system's, as kubectl verifies them."""
    import ssl

    context = ssl.create_default_context(cafile=ca_file, cadata=ca_data)
    # From 3.13 on Python refuses certificates that lack an extension of RFC 5280, such as those of
    # CAs that old clusters or plain `openssl req -x509` made. Go does not (crypto/x509, Verify),
    # and takes every certificate that it is given for an anchor.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def describe_tls_error(error: BaseException) -> str:
    """The reason of an error of a socket, of TLS or of a file, in lower case."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or error).lower().replace("_", " ")
