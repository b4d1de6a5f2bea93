"""The admission server: reviews over TLS, counted, by a door that can be changed while it runs."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from memqos.errors import InputError
from memqos.kube.review import Response, encode_review
from memqos.serve.admission import PodReviewer
from memqos.serve.connections import ClientLimits
from memqos.serve.endpoints import JSON, PLAIN, HttpReply, monitoring_routes
from memqos.serve.exposition import Family, Histogram, MetricSample, histograms, labels
from memqos.serve.http import Listener, listen

if TYPE_CHECKING:
    from memqos.serve.addresses import ListenAddress
    from memqos.serve.certificates import Certificate

MUTATE: Final = "/mutate"
VALIDATE: Final = "/validate"
REVIEW_SIZE_LIMIT: Final = 20 << 20
"""Bytes of a review.

etcd stores objects of 1.5 MiB, of which Go's JSON makes up to six times as much (it writes `<` as
`\\u003c`), and the review of a resize holds two of them. Were one refused for its size, a pod could
be written so that `failurePolicy: Ignore` lets it in.
"""
WEBHOOK_LIMITS: Final = ClientLimits(
    connections=256, handshakes=512, body=REVIEW_SIZE_LIMIT, bodies=24 << 20
)
"""An API server has 200 requests that change something under way, each with a connection."""
_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)


class Webhook:
    """Answers the API server."""

    def __init__(self, reviewer: PodReviewer) -> None:
        self.reviewer = reviewer
        """Reviews that come from now on are held against it."""
        self._verdicts: Counter[tuple[str, str]] = Counter()
        self._closed: Counter[str] = Counter()
        self._seconds = {path: Histogram(_SECONDS) for path in (MUTATE, VALIDATE)}

    async def listen(self, address: "ListenAddress", certificate: "Certificate") -> Listener:
        """Start to answer."""
        listener = await listen(
            monitoring_routes(self._families, lambda: None, lambda: None),
            *address,
            posts={
                MUTATE: lambda body: self._answer(MUTATE, body, self.reviewer.mutate),
                VALIDATE: lambda body: self._answer(VALIDATE, body, self.reviewer.validate),
            },
            bounds=WEBHOOK_LIMITS,
            tls=lambda: certificate.context,
        )
        self._closed = listener.closed
        return listener

    def _answer(
        self, path: str, body: bytearray, judge: Callable[[bytearray], Response]
    ) -> HttpReply:
        started = time.perf_counter()
        try:
            response = judge(body)
        except InputError as error:
            self._verdicts[path, "malformed"] += 1
            return HttpReply(400, PLAIN, f"{error}\n".encode("utf-8", "replace"))
        self._verdicts[path, _verdict(response)] += 1
        self._seconds[path].observe(time.perf_counter() - started)
        return HttpReply(200, JSON, encode_review(response))

    def _families(self) -> Iterator[Family]:
        yield Family(
            "memqos_webhook_reviews_total",
            "counter",
            "Reviews by path and verdict.",
            [
                MetricSample(labels(path=path, verdict=verdict), count)
                for (path, verdict), count in sorted(self._verdicts.items())
            ],
        )
        yield Family(
            "memqos_webhook_review_seconds",
            "histogram",
            "Time to judge a review.",
            histograms({labels(path=path): each for path, each in self._seconds.items()}),
        )
        yield Family(
            "memqos_webhook_connections_closed_total",
            "counter",
            "Connections closed because there were too many handshakes, connections, bytes of "
            "slow requests, or file descriptors in use.",
            [
                MetricSample(labels(limit=limit), count)
                for limit, count in sorted(self._closed.items())
            ],
        )


def _verdict(response: Response) -> str:
    if not response.allowed:
        return "refused"
    return "patched" if response.patch else "warned" if response.warnings else "allowed"
