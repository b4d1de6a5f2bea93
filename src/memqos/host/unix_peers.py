"""Who is connected to a unix socket that another process serves, by sock_diag(7)."""

import os
import socket
import sys
from collections.abc import Iterator
from struct import Struct
from typing import Final

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_REQUEST_DUMP: Final = 0x301
"""NLM_F_REQUEST | NLM_F_DUMP."""
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_ESTABLISHED: Final = 1 << 1
_SHOW_NAME_AND_PEER: Final = 1 | 4
_NAME, _PEER = 0, 2
_HEADER: Final = Struct("=IHHII")
"""Length, type, flags, sequence, port of a netlink message."""
_QUERY: Final = Struct("=BBHIIIII")
"""struct unix_diag_req (linux/unix_diag.h): family, protocol, –, states, inode, what to show, –."""
_ANSWER_SIZE: Final = 16
"""Of struct unix_diag_msg, which the attributes follow."""
_ATTRIBUTE: Final = Struct("=HH")
_SECONDS: Final = 2.0
_NO_COOKIE: Final = 0xFFFF_FFFF


def connected_processes(path: str, proc: str = "/proc") -> tuple[str, ...] | None:
    """Name and PID of each process that is connected to a socket, once for each connection.

    None where the kernel does not say; one whose files may not be read, or that is in another PID
    namespace, is called unknown.
    """
    try:
        peers = sorted(_peers_of(os.path.realpath(path)))
    except OSError:
        return None
    owners = _owners(set(peers), proc) if peers else {}
    return tuple([owners.get(inode, "unknown") for inode in peers])


def _peers_of(path: str) -> Iterator[int]:
    """The inodes of the sockets at the other ends of those that were accepted with this path."""
    for data in _dump():
        attributes = dict(_attributes(data[_ANSWER_SIZE:]))
        # The name of an abstract socket starts with a zero byte.
        name = os.fsdecode(attributes.get(_NAME, b"").partition(b"\0")[0])
        if name and os.path.realpath(name) == path and _PEER in attributes:
            yield int.from_bytes(attributes[_PEER], sys.byteorder)


def _dump() -> Iterator[bytes]:
    """All connected unix sockets of this network namespace."""
    query = _QUERY.pack(
        socket.AF_UNIX, 0, 0, _ESTABLISHED, 0, _SHOW_NAME_AND_PEER, _NO_COOKIE, _NO_COOKIE
    )
    header = _HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(_SECONDS)
        netlink.send(header + query)
        while True:
            data = netlink.recv(1 << 16)
            while len(data) >= _HEADER.size:
                length, kind, *_ = _HEADER.unpack_from(data)
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR or length < _HEADER.size:
                    raise OSError("the kernel does not list its sockets")
                yield data[_HEADER.size : length]
                data = data[_aligned(length) :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _owners(inodes: set[int], proc: str) -> dict[int, str]:
    """Inode of a socket → the process that has it."""
    links = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, str] = {}
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            files = os.listdir(f"{proc}/{pid}/fd")
            with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as comm:
                name = comm.read().strip()
        except OSError:
            continue
        for inode in {links.get(_target(f"{proc}/{pid}/fd/{file}"), 0) for file in files} - {0}:
            found[inode] = f"{name} (PID {pid})"
    return found


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""  # closed meanwhile
