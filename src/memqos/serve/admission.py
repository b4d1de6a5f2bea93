"""The admission webhook: answer reviews of pods on its mutating and its validating path.

The API server has defaulted a pod and applied limit ranges before it calls the webhook, and
validates the patched pod. A pod that cannot be judged is allowed or denied as the policy says:
every review gets an answer. The size of a pod is bounded, and so is the memory of a review.
"""

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from memqos.cluster.limit_range import LimitRangeAmounts, apply_limit_ranges
from memqos.cluster.resize import resize_pod
from memqos.errors import InputError, MemqosError, quote_excerpt
from memqos.findings.policy import AdmissionPolicy, policy_breaches
from memqos.kube.admission_review import (
    Response,
    ReviewRequest,
    ReviewStatus,
    decode_review,
    decode_uid,
    encode_patch,
    encode_review,
    pod_level_patch,
)
from memqos.kube.defaulting import decoding_defaults, prepare_for_storage
from memqos.kube.pod import Pod, ResourceList, ResourceRequirements
from memqos.kube.shape import Shape, containers_of
from memqos.kube.validation import validate
from memqos.release import Release
from memqos.serve.connections import ClientLimits
from memqos.serve.endpoints import JSON, PLAIN, HttpReply, monitoring_routes
from memqos.serve.exposition import Family, Histogram, MetricSample, histograms, labels
from memqos.serve.http import Listener, listen
from memqos.units import format_bytes

if TYPE_CHECKING:
    from memqos.serve.certificates import Certificate
    from memqos.serve.endpoints import ListenAddress


ALL_NAMESPACES: Final = ""
"""The key of limit ranges that apply in every namespace."""
_WARNING_SIZE: Final = 240
_WARNINGS: Final = 16
"""The API server cuts a warning beyond 256 characters, and drops those beyond 4096 in all
(apiserver endpoints/filters/warning.go)."""
_MESSAGE_SIZE: Final = 4096
"""Characters of the message of a denial."""
_PATCH_SIZE: Final = 64 << 10
"""Bytes of a patch."""

_VALUES: Final = 100_000
_CONTAINERS: Final = 1_000
_AMOUNTS: Final = 10_000
_NAME_SIZE: Final = 253 + len("/") + 63
_QUANTITY_SIZE: Final = 128
"""Bounds of a pod that is judged, far beyond any that runs. A name has at most a DNS prefix."""
_WIDE_SIZE: Final = 8 << 20
_WIDE: Final = re.compile(rb"[\xc4-\xf4]|\\u(?!00)")
"""A single character beyond U+00FF, as UTF-8 or escaped, has CPython take two or four bytes for
every character of the same text (PEP 393)."""

_log = logging.getLogger("memqos.serve")


class PodReviewer(msgspec.Struct, frozen=True):
    """Judges new pods by a policy, for a Kubernetes release."""

    policy: AdmissionPolicy
    release: Release
    ranges: Mapping[str, Sequence[LimitRangeAmounts]] = {}
    """Namespace → limit ranges with defaults for the pod level."""

    def mutate(self, body: bytes | bytearray) -> Response:
        """Answer a review with a patch of the pod-level resources; InputError if it is none."""
        return self._answer(body, self._complete_pod)

    def validate(self, body: bytes | bytearray) -> Response:
        """Answer a review with a verdict; InputError if it is none."""
        return self._answer(body, self._judge_pod)

    def _answer(
        self, body: bytes | bytearray, judge: Callable[[ReviewRequest], Response]
    ) -> Response:
        if len(body) > _WIDE_SIZE and _WIDE.search(body):
            why = f"it has more than {format_bytes(_WIDE_SIZE)} and characters beyond U+00FF"
            return self._answer_failure(decode_uid(body), why)
        request = decode_review(body)
        if not _is_about_a_pod(request):
            return Response(request.uid, True)
        try:
            # Every value of a list or an object but its first follows a comma. Commas in strings
            # are counted too: a bound that needs no parsing may be too strict. Most reviews have
            # fewer bytes than that, and are not scanned.
            if len(body) > _VALUES and body.count(b",") > _VALUES:
                raise InputError(f"it may have more than {_VALUES:,} values, by its commas")
            return judge(request)
        except (MemqosError, msgspec.ValidationError, RecursionError) as error:
            return self._answer_failure(request.uid, str(error))
        except Exception as error:  # the policy also answers for a pod that triggers a bug here
            kind = type(error).__name__
            namespace = quote_excerpt(_namespace(request))
            _log.error(
                "cannot check a pod of %s: %s: %s", namespace, kind, quote_excerpt(str(error))
            )
            return self._answer_failure(request.uid, f"{kind}: {error}")

    def _answer_failure(self, uid: str, why: str) -> Response:
        what = f"memqos cannot check this pod: {why}"
        if self.policy.on_error == "allow":
            return Response(uid, True, warnings=(_truncate(what),))
        return _deny(uid, 500, "InternalError", what)

    def _complete_pod(self, request: ReviewRequest) -> Response:
        if request.operation != "CREATE" or not self.release.is_enabled("PodLevelResources"):
            return Response(request.uid, True)
        pod = _pod(request.object)
        read = decoding_defaults(pod, self.release)
        ranges = [*self.ranges.get(_namespace(request), ()), *self.ranges.get(ALL_NAMESPACES, ())]
        filled = apply_limit_ranges(read, ranges, self.release, pod_defaults=True)
        # The API server defaults the containers itself: only the pod level is patched.
        to_store = prepare_for_storage(msgspec.structs.replace(read, pod=filled.pod), self.release)
        stored = to_store.pod
        operations = pod_level_patch(_stanza(request.object), stored) if stored is not None else []
        if not operations:
            return Response(request.uid, True)
        patch = encode_patch(operations)
        if len(patch) > _PATCH_SIZE:
            raise InputError(f"its patch has {len(patch):,} bytes, more than {_PATCH_SIZE:,}")
        return Response(request.uid, True, patch=patch, patch_type="JSONPatch")

    def _judge_pod(self, request: ReviewRequest) -> Response:
        pod = _pod(request.object)
        before: tuple[Pod, Shape] | None = None
        if request.operation == "CREATE":
            shape = prepare_for_storage(decoding_defaults(pod, self.release), self.release)
            faults = [str(error) for error in validate(pod, shape, self.release)]
        elif request.sub_resource == "resize":
            old = _pod(request.old_object)
            change = resize_pod(old, pod, self.release)
            shape, faults = change.after, [str(error) for error in change.errors]
            before = old, change.before
        else:
            return Response(request.uid, True)
        if faults:
            return _deny(request.uid, 422, "Invalid", _join_faults(faults))
        found = policy_breaches(self.policy, pod, shape, _namespace(request), self.release, before)
        warnings = _warnings([str(each) for each in found if each.mode == "warn"])
        refusals = [str(each) for each in found if each.mode == "refuse"]
        if not refusals:
            return Response(request.uid, True, warnings=warnings)
        return _deny(request.uid, 403, "Forbidden", _join_faults(refusals), warnings)


def _is_about_a_pod(request: ReviewRequest) -> bool:
    return (
        request.kind.group == ""
        and request.kind.kind == "Pod"
        and request.operation in ("CREATE", "UPDATE")
        and request.sub_resource in ("", "resize")
    )


def _namespace(request: ReviewRequest) -> str:
    return request.namespace or "default"


def _deny(
    uid: str, code: int, reason: str, message: str, warnings: tuple[str, ...] = ()
) -> Response:
    return Response(
        uid, False, ReviewStatus(code, reason, _truncate(message, _MESSAGE_SIZE)), warnings
    )


def _join_faults(texts: list[str]) -> str:
    """As many faults as fit into a message, and how many more there are."""
    size = len("; and 1000000 more")
    for shown, text in enumerate(texts):
        size += len(text) + len("; ")
        if shown and size > _MESSAGE_SIZE:
            return "; ".join(texts[:shown]) + f"; and {len(texts) - shown} more"
    return "; ".join(texts)


def _warnings(texts: list[str]) -> tuple[str, ...]:
    if len(texts) > _WARNINGS:
        shown = _WARNINGS - 1
        texts = [*texts[:shown], f"and {len(texts) - shown} more warnings of memqos"]
    return tuple([_truncate(text) for text in texts])


def _truncate(text: str, size: int = _WARNING_SIZE) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


class _Stanza(msgspec.Struct, frozen=True):
    resources: dict[str, Any] | None = None


class _Sent(msgspec.Struct, frozen=True):
    spec: _Stanza = _Stanza()


_pods: Final = msgspec.json.Decoder(Pod | None)
_sent: Final = msgspec.json.Decoder(_Sent)


def _pod(raw: msgspec.Raw) -> Pod:
    pod: Pod | None = _pods.decode(raw)
    if pod is None:
        raise InputError("the review has no object")
    _check_size(pod)
    return pod


def _stanza(raw: msgspec.Raw) -> dict[str, Any]:
    """`resources` of the pod as it was sent; nothing else of the object is decoded."""
    return {"resources": _sent.decode(raw).spec.resources}


def _check_size(pod: Pod) -> None:
    """Refuse a pod whose names and amounts would take much memory in messages and caches."""
    containers = containers_of(pod)
    if len(containers) > _CONTAINERS:
        raise InputError(f"it has {len(containers):,} containers, more than {_CONTAINERS:,}")
    amounts = 0
    for container in containers:
        if len(container.name) > _NAME_SIZE:
            raise _too_long(container.name, _NAME_SIZE)
        if container.resources is not None:
            amounts += _check_amounts(container.resources)
    if pod.spec.resources is not None:
        amounts += _check_amounts(pod.spec.resources)
    if pod.spec.overhead:
        amounts += _check_list(pod.spec.overhead)
    if amounts > _AMOUNTS:
        raise InputError(f"it has {amounts:,} requests and limits, more than {_AMOUNTS:,}")


def _check_amounts(resources: ResourceRequirements) -> int:
    requests, limits = resources.requests, resources.limits
    return (_check_list(requests) if requests else 0) + (_check_list(limits) if limits else 0)


def _check_list(amounts: ResourceList) -> int:
    # Inline, not a function for each text: this runs for every review, and calls would dominate it.
    for name, amount in amounts.items():
        if len(name) > _NAME_SIZE:
            raise _too_long(name, _NAME_SIZE)
        if isinstance(amount, str) and len(amount) > _QUANTITY_SIZE:
            raise _too_long(amount, _QUANTITY_SIZE)
    return len(amounts)


def _too_long(text: str, size: int) -> InputError:
    return InputError(f"{quote_excerpt(text)} has {len(text):,} characters, more than {size}")


MUTATE: Final = "/mutate"
VALIDATE: Final = "/validate"
REVIEW_SIZE_LIMIT: Final = 20 << 20
"""Bytes of a review.

etcd stores objects of up to 1.5 MiB (--max-request-bytes). Go's encoding/json makes up to six times
as much of them, as it writes `<` as `\\u003c`, and the review of a resize has two objects. If the
webhook refused a review for its size, `failurePolicy: Ignore` would admit a pod made that large.
"""
WEBHOOK_LIMITS: Final = ClientLimits(
    connections=256, handshakes=512, body=REVIEW_SIZE_LIMIT, bodies=24 << 20
)
"""An API server runs 200 mutating requests at once by default (--max-mutating-requests-inflight),
each with a connection."""
_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)


class Webhook:
    """The webhook's HTTP server."""

    def __init__(self, reviewer: PodReviewer) -> None:
        self.reviewer = reviewer
        """Judges all further reviews; may be replaced."""
        self._verdicts: Counter[tuple[str, str]] = Counter()
        self._closed: Counter[str] = Counter()
        self._seconds = {path: Histogram(_SECONDS) for path in (MUTATE, VALIDATE)}

    async def listen(self, address: "ListenAddress", certificate: "Certificate") -> Listener:
        """Listen on an address."""
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
            "Reviews by path and result.",
            [
                MetricSample(labels(path=path, verdict=verdict), count)
                for (path, verdict), count in sorted(self._verdicts.items())
            ],
        )
        yield Family(
            "memqos_webhook_review_seconds",
            "histogram",
            "Time to process a review.",
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
