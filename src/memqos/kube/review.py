"""AdmissionReview v1: what the API server asks before it stores an object, and how it is answered.

Only pods are decoded here; the object itself stays as it came, since a patch must fit it.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from memqos.errors import InputError, quote_brief

REVIEW_API_VERSION: Final = "admission.k8s.io/v1"
REVIEW_KIND: Final = "AdmissionReview"


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


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """What is about to happen to one object."""

    uid: Annotated[str, Meta(max_length=253)]
    """It goes into the answer."""
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


class ReviewStatus(msgspec.Struct, frozen=True):
    """Why a request is refused, as clients show it."""

    code: int
    reason: str
    message: str


class Response(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer to one request."""

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
        raise InputError(f"this is no AdmissionReview: {error}") from None
    if (review.api_version, review.kind) != (REVIEW_API_VERSION, REVIEW_KIND):
        raise InputError(
            f"this is no {REVIEW_KIND} of {REVIEW_API_VERSION}",
            hint=f"set admissionReviewVersions to v1, not {quote_brief(review.api_version)}",
        )
    if review.request is None or not review.request.uid:
        raise InputError("the review holds no request with a uid")
    return review.request


_encoder: Final = msgspec.json.Encoder()


def encode_review(response: Response) -> bytes:
    """The review that carries an answer."""
    answer: dict[str, Any] = {
        "apiVersion": REVIEW_API_VERSION,
        "kind": REVIEW_KIND,
        "response": response,
    }
    return _encoder.encode(answer)
