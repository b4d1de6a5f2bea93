"""`memqos webhook`: an admission server that completes and judges new pods."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import click

from memqos.cli.namespaces import read_namespaces
from memqos.cli.output import complain
from memqos.cli.policies import content_of, policy_in
from memqos.cli.reading import Reader
from memqos.cli.releases import release_asked, release_options
from memqos.errors import MemqosError
from memqos.findings.policy import API_VERSION, KIND, Policy
from memqos.release import Release
from memqos.serve.addresses import Address, address_of
from memqos.serve.admission import Door
from memqos.serve.certificates import Certificate
from memqos.serve.webhook import MUTATE, VALIDATE, Webhook

_RELOAD_SECONDS: Final = 10.0


@click.command()
@click.option("--policy", metavar="FILE", help="Rules for new pods.  [default: none]")
@click.option(
    "--limit-ranges",
    metavar="FILE",
    help="LimitRanges with defaults of type Pod, as KEP-2837 proposes.",
)
@click.option("--tls-cert", metavar="FILE", required=True, help="The server's certificate chain.")
@click.option("--tls-key", metavar="FILE", required=True, help="Its key.")
@click.option(
    "--listen",
    default="127.0.0.1:8443",
    metavar="ADDRESS:PORT",
    help="Where to answer.  [default: 127.0.0.1:8443]",
)
@release_options
def command(
    policy: str | None,
    limit_ranges: str | None,
    tls_cert: str,
    tls_key: str,
    listen: str,
    release: str | None,
    gates: tuple[str, ...],
) -> int:
    """Answer the API server's reviews of new pods, over TLS.

    \b
    /mutate    completes the pod level: requests out of limits and containers, and the
               defaults of limit ranges of type Pod
    /validate  refuses what Kubernetes would refuse, and what breaks a rule of the policy
    /healthz, /readyz, /metrics

    Certificate, policy and limit ranges are read again when their files change. Where one is
    wrong or cannot be read, that is reported, what was in use stays in use, and the next try
    follows. SIGTERM stops it.
    """
    asked, notes = release_asked(release, gates)
    for note in notes:
        complain(f"note: {note}")
    if not asked.enabled("PodLevelResources"):
        complain(f"note: {MUTATE} changes nothing: PodLevelResources is off in {asked}")
    address = address_of(listen)
    files = _Files(policy, limit_ranges, asked)
    webhook = Webhook(files.door())
    certificate = Certificate(tls_cert, tls_key)
    asyncio.run(_serve(webhook, address, certificate, files))
    return 0


class _Files:
    """What the door is made of, and whether that has changed."""

    def __init__(self, policy: str | None, limit_ranges: str | None, release: Release) -> None:
        self._policy = policy
        self._limit_ranges = limit_ranges
        self._release = release
        self._known: list[bytes] = []

    def door(self) -> Door:
        contents = self._contents()
        door = self._read()
        self._known = contents  # not before: a file that could not be read has changed still
        return door

    def _read(self) -> Door:
        policy = Policy(API_VERSION, KIND) if self._policy is None else policy_in(self._policy)
        if self._limit_ranges is None:
            return Door(policy, self._release)
        reader = Reader()
        state = read_namespaces(reader, self._limit_ranges, self._release, pod_defaults=True)
        reader.insist(self._limit_ranges)
        return Door(policy, self._release, state.ranges)

    def changed(self) -> bool:
        return self._contents() != self._known

    def _contents(self) -> list[bytes]:
        return [content_of(file) for file in (self._policy, self._limit_ranges) if file is not None]


async def _serve(
    webhook: Webhook, address: Address, certificate: Certificate, files: _Files
) -> None:
    listener = await webhook.listen(address, certificate)
    complain(f"answering on https://{listener.address}: {MUTATE}, {VALIDATE}")
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    complaints: dict[str, str] = {}
    try:
        while not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _RELOAD_SECONDS)
            if not stopping.is_set():
                _refresh("the certificate", certificate.refresh, complaints)
                _refresh("the policy", lambda: _reopen(webhook, files), complaints)
    finally:
        await listener.close()


def _reopen(webhook: Webhook, files: _Files) -> bool:
    if not files.changed():
        return False
    webhook.door = files.door()
    return True


def _refresh(what: str, refresh: Callable[[], bool], complaints: dict[str, str]) -> None:
    """Try to take what has changed; what goes wrong is tried again, and said once."""
    try:
        if refresh():
            complain(f"{what} was read again")
        complaints.pop(what, None)
    except (MemqosError, OSError) as error:
        if complaints.get(what) != str(error):
            complaints[what] = str(error)
            complain(f"{what} has changed and is wrong, so what was in use stays: {error}")
