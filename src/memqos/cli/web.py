"""`memqos web`: a page for the node and the cluster, served on this machine."""

import asyncio
import os
import re
import secrets
import signal
import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import click

from memqos.cli.browser import open_browser
from memqos.cli.help_sections import SectionedCommand
from memqos.cli.node_source import WatchOptions, open_source, watch_options
from memqos.cli.options import collect_options
from memqos.cli.output import check_output_file, complain, write_output_file
from memqos.cli.streams import raw_stream
from memqos.cli.web_data import WebData, page_files
from memqos.converge.refresher import Refresher
from memqos.errors import InputError
from memqos.serve.certificates import Certificate
from memqos.serve.connections import ClientLimits
from memqos.serve.endpoints import ListenAddress, parse_listen_address
from memqos.serve.http import listen as listen_on
from memqos.serve.web_page import WebPage

if TYPE_CHECKING:
    from memqos.cli.audit_run import AuditRequest

_INTERVAL: Final = 1.0
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_PORT: Final = re.compile(r":\d+$")
_LIMITS: Final = ClientLimits(connections=32, handshakes=32)


@click.command(cls=SectionedCommand)
@click.option(
    "--listen",
    default="127.0.0.1:0",
    metavar="ADDRESS:PORT",
    help="Where to listen; port 0 is any that is free.  [default: 127.0.0.1:0]",
)
@click.option("--tls-cert", metavar="FILE", help="A certificate chain, to listen beyond loopback.")
@click.option("--tls-key", metavar="FILE", help="The key of --tls-cert.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME[:PORT]",
    help="Another host name for the page; may be repeated.",
)
@click.option(
    "--address-file",
    metavar="FILE",
    help="Write the page's address with its token to this file, not to the terminal.",
)
@click.option(
    "--audit",
    "dumps",
    multiple=True,
    metavar="DUMP",
    help="Audit this dump, or with 'cluster' the cluster itself, on the page.",
)
@click.option("--open", "opens", is_flag=True, help="Open the browser on the page.")
@watch_options
@collect_options(WatchOptions)
def command(
    options: WatchOptions,
    *,
    listen: str,
    tls_cert: str | None,
    tls_key: str | None,
    hosts: tuple[str, ...],
    address_file: str | None,
    dumps: tuple[str, ...],
    opens: bool,
) -> int:
    """Serve a page with this node's memory: usage, pressure, events and findings, live.

    The printed address contains a random token; without it the page has no data. The address is
    shown on a terminal only: elsewhere, give --address-file. With --context the page shows all
    nodes of that cluster on which an agent runs. To listen beyond loopback, give --tls-cert and
    --tls-key.

    \b
    sudo memqos web --pods podsapi --open
    memqos web --context prod --audit cluster
    memqos web --play /var/lib/memqos/records
    """
    address = parse_listen_address(listen)
    certificate = _certificate(address, tls_cert, tls_key)
    if address_file is None and not opens and not sys.stdout.isatty():
        raise click.UsageError("the page's address is not shown: give --address-file or --open")
    check_output_file(address_file)
    source = open_source(options)
    refresher = Refresher(source, _INTERVAL)
    refresher.start()
    data = WebData(refresher, _audit_request(dumps), options.context)
    asyncio.run(_serve(data, address, certificate, hosts, address_file, opens=opens))
    refresher.stop()
    return 0


def _certificate(
    address: ListenAddress, tls_cert: str | None, tls_key: str | None
) -> Certificate | None:
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    if tls_cert is not None and tls_key is not None:
        return Certificate(tls_cert, tls_key)
    if address.host != "localhost" and not ip_address(address.host).is_loopback:
        raise InputError(
            f"{address.host} can be reached from elsewhere, and the token would be sent in the "
            "clear",
            hint="give --tls-cert and --tls-key, or listen on 127.0.0.1",
        )
    return None


def _audit_request(dumps: tuple[str, ...]) -> "AuditRequest | None":
    if not dumps:
        return None
    from memqos.audit.rules import select_rules
    from memqos.cli.audit_run import AuditRequest

    return AuditRequest(files=dumps, rules=select_rules((), ()))


async def _serve(
    data: WebData,
    address: ListenAddress,
    certificate: Certificate | None,
    hosts: tuple[str, ...],
    address_file: str | None,
    *,
    opens: bool,
) -> None:
    token = secrets.token_urlsafe(24)
    known: set[str] = set()
    page = WebPage(page_files(), data.routes, token, known)
    tls = None if certificate is None else (lambda: _refreshed(certificate))
    listener = await listen_on(
        {}, address.host, address.port, bounds=_LIMITS, tls=tls, answer=page.answer
    )
    scheme = "http" if certificate is None else "https"
    known |= server_names(listener.address, hosts, _DEFAULT_PORTS[scheme])
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    place = _reachable_place(listener.address, hosts)
    _announce(f"{scheme}://{place}/#token={token}", address_file, opens=opens)
    try:
        await stopping.wait()
    finally:
        await listener.close()
        page.close()


def server_names(place: str, hosts: tuple[str, ...], default_port: str) -> set[str]:
    """The values of Host with which browsers ask: the port is left out where it is the default."""
    host, _, port = place.rpartition(":")
    own, given = {host, "localhost"}, {name.lower() for name in hosts}
    found = {f"{name}:{port}" for name in own | given} | given
    return found | own if port == default_port else found


def _reachable_place(place: str, hosts: tuple[str, ...]) -> str:
    """Host and port for a browser: an unspecified address is none to connect to."""
    host, _, port = place.rpartition(":")
    if not ip_address(host.strip("[]")).is_unspecified:
        return place
    name = hosts[0] if hosts else "localhost"
    return name if _PORT.search(name) else f"{name}:{port}"


def _refreshed(certificate: Certificate) -> Any:
    try:
        certificate.refresh()
    except InputError as error:
        complain(error)
    return certificate.context


def _announce(url: str, address_file: str | None, *, opens: bool) -> None:
    """Show the address to the person alone: a command line or a log would show it to others."""
    if address_file is not None:
        write_output_file(address_file, f"{url}\n".encode())
        complain(f"the page's address is in {address_file}")
    elif sys.stdout.isatty():
        print(f"open {url}\nCtrl+C ends it")
        raw_stream(sys.stdout).flush()
    if opens:
        file = _redirect_file(url)
        if address_file is None and not sys.stdout.isatty():
            complain(f"the page's address is in {file}")
        open_browser(f"file://{file}")


def _redirect_file(url: str) -> str:
    """A private page that leads to the address: a browser's command line is visible to all."""
    import tempfile

    file = os.path.join(tempfile.mkdtemp(prefix="memqos-"), "open.html")
    page = f'<!doctype html><meta http-equiv="refresh" content="0;url={url}"><title>memqos</title>'
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(page)
    return file
