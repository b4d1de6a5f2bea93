"""Addresses to listen on, as a person writes them: `127.0.0.1:9177`, `[::1]:9177`."""

import re
from ipaddress import ip_address
from typing import Final, NamedTuple

from memqos.errors import InputError, quote_brief

_ADDRESS: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]*\]|[^:\[\]]*):(?P<port>[0-9]{1,5})", re.ASCII
)
_HIGHEST_PORT: Final = 65535


class ListenAddress(NamedTuple):
    """A host, as an IP address or localhost, and a port; 0 is any that is free."""

    host: str
    port: int


def parse_listen_address(text: str) -> ListenAddress:
    """Read an address; to be reached from elsewhere has to be asked for by address."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _HIGHEST_PORT:
        raise InputError(
            f"{quote_brief(text)} is not ADDRESS:PORT",
            hint="write it like 127.0.0.1:9177 or [::1]:9177",
        )
    host, port = found["host"], found["port"]
    if not host:
        raise InputError(
            f"{quote_brief(text)} names no address",
            hint=f"write 127.0.0.1:{port}, or 0.0.0.0:{port} to be reached from elsewhere",
        )
    if host != "localhost":
        _check_ip(host)
    return ListenAddress(host.strip("[]"), int(port))


def _check_ip(host: str) -> None:
    try:
        version = ip_address(host.strip("[]")).version
    except ValueError:
        version = None
    if version != (6 if host.startswith("[") else 4):
        raise InputError(
            f"{quote_brief(host)} is no IP address", hint="only localhost goes by its name"
        )
