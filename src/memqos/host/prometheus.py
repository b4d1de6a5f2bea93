"""A Prometheus server: range queries over HTTP, in parts that it accepts."""

import math
import ssl
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from memqos.errors import InputError, Unreachable
from memqos.host.credential_files import (
    client_context,
    describe_tls_error,
    load_certificate,
    read_token,
)
from memqos.host.history_files import PrometheusAnswer, answer_batches, decode_answer
from memqos.size.history import SampleBatch, SeriesQuantity
from memqos.units import format_bytes

MAX_POINTS: Final = 11_000
"""Points of a series in one answer (Prometheus web/api/v1/api.go, queryRange)."""
_PART: Final = 86_400.0
"""Seconds of a part: a day of 10,000 containers every 5 minutes is some 70 MB."""
_LARGEST_ANSWER: Final = 256 << 20
_TIMEOUT: Final = urllib3.Timeout(connect=10.0, read=120.0)
_BY: Final = "max by (namespace, pod, container)"


class PrometheusAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a server, and the files of credentials for it."""

    url: str
    token_file: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


class PrometheusHistory:
    """What a server knows of containers from `start` to `end`, in steps of seconds."""

    def __init__(
        self,
        access: PrometheusAccess,
        *,
        start: float,
        end: float,
        step: float,
        namespace: str | None = None,
    ) -> None:
        parts = urlsplit(access.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                "this is not the address of a Prometheus server",
                hint="it starts with https://, or with http:// where no token is sent",
            )
        if parts.username is not None or parts.password is not None:
            raise InputError(
                "the address contains a user or a password, which others could read",
                hint="give a file with --token-file",
            )
        self._where = f"{parts.scheme}://{parts.netloc}"
        if parts.scheme == "http" and (access.token_file or access.client_cert):
            raise InputError(
                f"credentials are never sent without TLS, and {self._where} is not TLS",
                hint="give an https address, or no credentials",
            )
        self._access = access
        self._base = access.url.rstrip("/")
        self._range = start, end, step
        self._namespace = namespace
        self._pool = urllib3.PoolManager(
            ssl_context=self._tls_context() if parts.scheme == "https" else None
        )

    def batches(self) -> Iterator[SampleBatch]:
        """All samples, a day at a time; peaks between two steps are part of the later one."""
        for start, end in self._parts():
            for quantity, query in self._queries():
                yield from answer_batches(self._ask(query, start, end), quantity)

    def _parts(self) -> Iterator[tuple[float, float]]:
        start, end, step = self._range
        steps = max(1, min(MAX_POINTS - 1, math.floor(_PART / step)))
        while start <= end:
            yield start, min(end, start + (steps - 1) * step)
            start += steps * step

    def _queries(self) -> Iterator[tuple[SeriesQuantity, str]]:
        step = max(1, math.ceil(self._range[2]))
        where = 'container!="",container!="POD"'
        if self._namespace is not None:
            quoted = self._namespace.replace("\\", "\\\\").replace('"', '\\"')
            where += f',namespace="{quoted}"'
        yield (
            "usage",
            f"{_BY} (max_over_time(container_memory_working_set_bytes{{{where}}}[{step}s]))",
        )
        yield (
            "limit",
            f'{_BY} (kube_pod_container_resource_limits{{{where},resource="memory"}})',
        )
        yield "restarts", f"{_BY} (kube_pod_container_status_restarts_total{{{where}}})"
        yield "kills", f"{_BY} (container_oom_events_total{{{where}}})"
        yield "stalls", f"{_BY} (container_pressure_memory_stalled_seconds_total{{{where}}})"
        # Of the node that the pod is on: kube-state-metrics names it in kube_pod_info alone.
        yield (
            "pressure",
            f"{_BY} (kube_pod_container_info{{{where}}} * on (namespace, pod) group_left (node) "
            "max by (namespace, pod, node) (kube_pod_info) * on (node) group_left () "
            "max by (node) "
            '(kube_node_status_condition{condition="MemoryPressure",status="true"}))',
        )

    def _ask(self, query: str, start: float, end: float) -> PrometheusAnswer:
        fields = {"query": query, "start": start, "end": end, "step": self._range[2]}
        headers = {"User-Agent": "memqos", "Accept": "application/json"}
        if self._access.token_file is not None:
            headers["Authorization"] = f"Bearer {read_token(self._access.token_file)}"
        try:
            answer = self._pool.request(
                "GET",
                f"{self._base}/api/v1/query_range?{urlencode(fields)}",
                headers=headers,
                timeout=_TIMEOUT,
                preload_content=False,
                redirect=False,
                retries=False,
            )
            data = answer.read(_LARGEST_ANSWER + 1)
        except (HTTPError, OSError) as error:
            raise Unreachable(
                f"{self._where}: {describe_tls_error(_socket_error(error))}",
                hint="is this the address of Prometheus, and is it reachable from here?",
            ) from None
        if len(data) > _LARGEST_ANSWER:
            raise Unreachable(
                f"{self._where}: an answer of more than {format_bytes(_LARGEST_ANSWER)}",
                hint="select a namespace with -n, or give a longer --step",
            )
        if answer.status in (401, 403):
            raise Unreachable(
                f"{self._where}: access denied ({answer.status})",
                hint="give a token with --token-file",
            )
        if answer.status not in (200, 400, 422):
            raise Unreachable(
                f"{self._where}: it answered {answer.status}",
                hint="is this the address of Prometheus? A path before /api/v1 belongs to it",
            )
        return decode_answer(data, self._where)

    def _tls_context(self) -> ssl.SSLContext:
        access = self._access
        try:
            context = client_context(access.ca_file)
            if access.client_cert is not None:
                load_certificate(context, access.client_cert, access.client_key)
        except (OSError, ValueError) as error:
            raise InputError(
                f"no certificates could be read ({describe_tls_error(error)})",
                file=access.client_cert or access.ca_file,
                hint="give files in PEM, the key without passphrase",
            ) from None
        return context


def _socket_error(error: BaseException) -> BaseException:
    """What the socket or TLS reported: the text of urllib3's own errors has its objects in it."""
    while not isinstance(error, OSError) and (inner := error.__cause__ or error.__context__):
        error = inner
    return error
