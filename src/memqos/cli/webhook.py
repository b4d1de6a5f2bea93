"""`memqos webhook`: an admission server that completes and judges new pods."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import click

from memqos.cli.admission_rules import read_namespaces, read_policy
from memqos.cli.help_sections import SectionedCommand
from memqos.cli.manifest_reader import ManifestReader
from memqos.cli.options import DEFAULT_RELEASE, release_options, resolve_release
from memqos.cli.output import complain
from memqos.errors import MemqosError
from memqos.findings.policy import POLICY_API_VERSION, POLICY_KIND, AdmissionPolicy
from memqos.host.manifest_files import load_file
from memqos.release import Release
from memqos.serve.admission import MUTATE, VALIDATE, PodReviewer, Webhook
from memqos.serve.certificates import Certificate
from memqos.serve.endpoints import ListenAddress, parse_listen_address

_RELOAD_SECONDS: Final = 10.0


@click.command(cls=SectionedCommand)
@click.option("--policy", metavar="FILE", help="An AdmissionPolicy.  [default: none]")
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
    help="The address to listen on.  [default: 127.0.0.1:8443]",
)
@partial(release_options, default=DEFAULT_RELEASE)
def command(
    policy: str | None,
    limit_ranges: str | None,
    tls_cert: str,
    tls_key: str,
    listen: str,
    release: str | None,
    gates: tuple[str, ...],
) -> int:
    """Run an admission webhook for new pods, over TLS.

    \b
    /mutate    sets pod-level defaults: requests from limits and containers,
               and the defaults of LimitRanges of type Pod
    /validate  refuses pods that are invalid, or break a rule of the policy
    /healthz, /readyz, /metrics

    Certificate, policy and LimitRanges are reloaded when their files change. If one is invalid or
    cannot be read, the error is logged, the previous one stays in use, and it is tried again.
    SIGTERM stops it.
    """
    resolved, notes = resolve_release(release, gates)
    for note in notes:
        complain(f"note: {note}")
    if not resolved.is_enabled("PodLevelResources"):
        complain(f"note: {MUTATE} changes nothing: PodLevelResources is off in {resolved}")
    address = parse_listen_address(listen)
    files = _AdmissionFiles(policy, limit_ranges, resolved)
    webhook = Webhook(files.load())
    certificate = Certificate(tls_cert, tls_key)
    asyncio.run(_serve(webhook, address, certificate, files))
    return 0


class _AdmissionFiles:
    """The files a reviewer is made of, and whether they have changed since it was."""

    def __init__(self, policy: str | None, limit_ranges: str | None, release: Release) -> None:
        self._policy = policy
        self._limit_ranges = limit_ranges
        self._release = release
        self._contents_in_use: list[bytes] = []

    def load(self) -> PodReviewer:
        contents = self._contents()
        reviewer = self._read()
        # Only now: a file that could not be read still counts as changed, and is tried again.
        self._contents_in_use = contents
        return reviewer

    def _read(self) -> PodReviewer:
        policy = (
            AdmissionPolicy(POLICY_API_VERSION, POLICY_KIND)
            if self._policy is None
            else read_policy(self._policy)
        )
        if self._limit_ranges is None:
            return PodReviewer(policy, self._release)
        reader = ManifestReader()
        state = read_namespaces(reader, self._limit_ranges, self._release, pod_defaults=True)
        reader.require_no_faults(self._limit_ranges)
        return PodReviewer(policy, self._release, state.ranges)

    def have_changed(self) -> bool:
        return self._contents() != self._contents_in_use

    def _contents(self) -> list[bytes]:
        files = (self._policy, self._limit_ranges)
        return [load_file(file)[1] for file in files if file is not None]


async def _serve(
    webhook: Webhook, address: ListenAddress, certificate: Certificate, files: _AdmissionFiles
) -> None:
    listener = await webhook.listen(address, certificate)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    complain(f"listening on https://{listener.address}: {MUTATE}, {VALIDATE}")
    complaints: dict[str, str] = {}
    try:
        while not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _RELOAD_SECONDS)
            if not stopping.is_set():
                _refresh("the certificate", certificate.refresh, complaints)
                _refresh("the policy", lambda: _reload(webhook, files), complaints)
    finally:
        await listener.close()


def _reload(webhook: Webhook, files: _AdmissionFiles) -> bool:
    if not files.have_changed():
        return False
    webhook.reviewer = files.load()
    return True


def _refresh(what: str, refresh: Callable[[], bool], complaints: dict[str, str]) -> None:
    """Load again what has changed; a failure is reported once, and tried again."""
    try:
        if refresh():
            complain(f"{what} was read again")
        complaints.pop(what, None)
    except (MemqosError, OSError) as error:
        if complaints.get(what) != str(error):
            complaints[what] = str(error)
            complain(
                f"{what} has changed and is invalid, so the previous one stays in use: {error}"
            )
