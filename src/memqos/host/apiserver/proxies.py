"""The proxy to an API server, by its kubeconfig or by the environment."""

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from memqos.errors import InputError
from memqos.host.apiserver.kubeconfig import ClusterAccess


def proxy_of(access: ClusterAccess, environment: Mapping[str, str] = os.environ) -> str | None:
    """The proxy's address; None where the server is reached directly."""
    proxy = access.cluster.proxy_url
    origin = access.origin
    if not proxy:
        server = urlsplit(access.cluster.server)
        proxy = _variable(f"{server.scheme}_proxy", environment)
        origin = f"${server.scheme.upper()}_PROXY"
        if not proxy or _bypasses_proxy(server.hostname or "", _port(server.port, server.scheme),
                                   _variable("no_proxy", environment)):  # fmt: skip
            return None
        if "://" not in proxy:
            proxy = f"http://{proxy}"
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise InputError(
            "this proxy cannot be used",
            file=origin,
            field="proxy-url" if access.cluster.proxy_url else None,
            hint="proxies of http:// and https:// can",
        )
    return proxy


def _variable(name: str, environment: Mapping[str, str]) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def _port(port: int | None, scheme: str) -> int:
    return port or (443 if scheme == "https" else 80)


def _bypasses_proxy(host: str, port: int, exceptions: str) -> bool:
    """Whether a host is reached directly: exceptions are names, domains, addresses and networks."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(
        _matches_exception(entry.strip().lower(), host.lower(), port, address)
        for entry in exceptions.split(",")
        if entry.strip()
    )


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _matches_exception(entry: str, host: str, port: int, address: _Address | None) -> bool:
    if entry == "*":
        return True
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            pass
    name, colon, of_port = entry.rpartition(":")
    if colon and of_port.isdigit():
        if int(of_port) != port:
            return False
        entry = name.strip("[]")
    entry = entry.removeprefix("*")
    return host == entry.removeprefix(".") or host.endswith(
        entry if entry.startswith(".") else f".{entry}"
    )


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
