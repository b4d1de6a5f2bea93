"""AdmissionReview v1: the request before the API server stores an object, and the response.

Only pods are decoded here; the object itself stays as sent, since a patch must fit it.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from memqos.errors import InputError, quote_excerpt
from memqos.kube.resources import Resources, format_amount

REVIEW_API_VERSION: Final = "admission.k8s.io/v1"
REVIEW_KIND: Final = "AdmissionReview"
_UID_SIZE: Final = 253


class ReviewKind(msgspec.Struct, frozen=True):
    """Group, version and kind of what was sent."""

    group: str = ""
    version: str = ""
    kind: str = ""


class ReviewResource(msgspec.Struct, frozen=True):
    """Group, version and resource that the request is about."""

    group: str = ""
    version: str = ""
    resource: str = ""


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What is about to happen to one object."""

    uid: Annotated[str, Meta(max_length=_UID_SIZE)]
    """Copied into the response."""
    kind: ReviewKind = ReviewKind()
    resource: ReviewResource = ReviewResource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: ReviewRequest | None = None


class _RawRequest(msgspec.Struct, frozen=True):
    uid: msgspec.Raw = msgspec.Raw(b'""')


class _RawReview(msgspec.Struct, frozen=True):
    request: _RawRequest = _RawRequest()


class ReviewStatus(msgspec.Struct, frozen=True):
    """Why a request is refused, as clients show it."""

    code: int
    reason: str
    message: str


class Response(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The response to one request."""

    uid: str
    allowed: bool
    status: ReviewStatus | None = None
    warnings: tuple[str, ...] = ()
    patch: bytes | None = None
    """A JSON patch; msgspec writes it as base64, as it is to be sent."""
    patch_type: str | None = None


_reviews: Final = msgspec.json.Decoder(_Review)


def decode_review(body: bytes | bytearray) -> ReviewRequest:
    """The request in a review; raise InputError where the body is none."""
    try:
        review = _reviews.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"this is not an AdmissionReview: {error}") from None
    if (review.api_version, review.kind) != (REVIEW_API_VERSION, REVIEW_KIND):
        raise InputError(
            f"this is not an {REVIEW_KIND} of {REVIEW_API_VERSION}",
            hint=f"set admissionReviewVersions to v1, not {quote_excerpt(review.api_version)}",
        )
    if review.request is None or not review.request.uid:
        raise InputError("the review has no request with a uid")
    return review.request


_raw_reviews: Final = msgspec.json.Decoder(_RawReview)


def decode_uid(body: bytes | bytearray) -> str:
    """The uid of the request in a review, and no other text of it; InputError where it has none."""
    try:
        raw = _raw_reviews.decode(body).request.uid
        uid = msgspec.json.decode(raw, type=str) if len(raw) <= _UID_SIZE else ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"this is not an {REVIEW_KIND}: {error}") from None
    if not uid:
        raise InputError(f"the review has no uid of at most {_UID_SIZE} characters")
    return uid


_encoder: Final = msgspec.json.Encoder()


def encode_review(response: Response) -> bytes:
    """The review that carries a response."""
    answer: dict[str, Any] = {
        "apiVersion": REVIEW_API_VERSION,
        "kind": REVIEW_KIND,
        "response": response,
    }
    return _encoder.encode(answer)


_STANZA: Final = ("spec", "resources")


def pod_level_patch(spec: Mapping[str, Any], desired: Resources) -> list[dict[str, Any]]:
    """A patch that adds the desired amounts which `spec.resources` lacks; those it has stay.

    A patch can only add to an object that exists, so missing stanzas are added first. `null` counts
    as missing.
    """
    return list(_operations(spec, desired))


def encode_patch(operations: list[dict[str, Any]]) -> bytes:
    """A patch as it is sent."""
    return msgspec.json.encode(operations)


def _operations(spec: Mapping[str, Any], desired: Resources) -> Iterator[dict[str, Any]]:
    resources = spec.get("resources")
    if resources is None:
        resources = {}
        if desired.requests or desired.limits:
            yield _add(_STANZA, {})
    for side in ("requests", "limits"):
        amounts = getattr(desired, side)
        present = resources.get(side)
        missing = [name for name in amounts if name not in (present or {})]
        if missing and present is None:
            yield _add((*_STANZA, side), {})
        for name in missing:
            yield _add((*_STANZA, side, name), format_amount(name, amounts[name]))


def _add(path: tuple[str, ...], value: object) -> dict[str, Any]:
    return {"op": "add", "path": pointer(path), "value": value}


def pointer(path: tuple[str, ...]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)
