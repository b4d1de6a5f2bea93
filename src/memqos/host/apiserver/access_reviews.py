"""Who holds a token, and what they may read: TokenReview and SubjectAccessReview.

Answers are remembered for some seconds, by a digest of the token: a view that polls many agents
would else cost two reviews a poll and agent. Refusals are remembered as well. New reviews are
limited in rate, so that callers with made-up tokens cannot burden the API server.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from threading import Lock
from typing import Final, Generic, TypeVar

import msgspec

from memqos.errors import MemqosError
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.resources import ApiRequest
from memqos.kube.events import Bucket

AGENT_AUDIENCE: Final = "memqos.io/agent"
"""The audience of tokens that are good for agents alone."""
REMEMBER_SECONDS: Final = 10.0
_MOST: Final = 256
_AT_ONCE: Final = 40
_SECONDS_EACH: Final = 0.1
_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"

_T = TypeVar("_T")


class TooManyReviews(MemqosError):
    """So many new tokens in a short time that no more are reviewed."""


class Caller(msgspec.Struct, frozen=True):
    """Who holds a token, as the API server says."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class ReadAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A right on pods: one of a name in its namespace, or all where both are empty."""

    verb: str
    namespace: str = ""
    name: str = ""


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: Caller = Caller()
    audiences: tuple[str, ...] | None = None


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct, Generic[_T], frozen=True):
    status: _T


class _Memory(Generic[_T]):
    """Answers of the last seconds, at most so many."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: OrderedDict[object, tuple[float, _T]] = OrderedDict()

    def get(self, key: object) -> tuple[_T] | None:
        """The answer, in a tuple; None where there is none, or it is too old."""
        found = self._answers.get(key)
        if found is None or self._clock() - found[0] >= REMEMBER_SECONDS:
            return None
        return (found[1],)

    def put(self, key: object, answer: _T) -> None:
        self._answers.pop(key, None)
        self._answers[key] = self._clock(), answer
        while len(self._answers) > _MOST:
            self._answers.popitem(last=False)


class AccessReviewer:
    """Has the API server review callers; threads may share it."""

    def __init__(self, server: ApiClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._lock = Lock()
        self._callers: _Memory[Caller | None] = _Memory(clock)
        self._rights: _Memory[bool] = _Memory(clock)
        self._rate = Bucket(_AT_ONCE, _SECONDS_EACH)

    def authenticate(self, token: str) -> Caller | None:
        """The user of a token; None where it is not valid, or no longer."""
        key = sha256(token.encode("latin-1", "replace")).digest()
        with self._lock:
            known = self._callers.get(key)
        if known is None:
            # Tokens for the API server itself, then those that are good for agents alone.
            caller = self._review_token(token, ()) or self._review_token(token, (AGENT_AUDIENCE,))
            known = (caller,)
            with self._lock:
                self._callers.put(key, caller)
        return known[0]

    def allows(self, caller: Caller, access: ReadAccess) -> bool:
        """Whether a caller has a right."""
        key = msgspec.json.encode(caller), access
        with self._lock:
            known = self._rights.get(key)
        if known is None:
            known = (self._review_access(caller, access),)
            with self._lock:
                self._rights.put(key, known[0])
        return known[0]

    def _review_token(self, token: str, audiences: tuple[str, ...]) -> Caller | None:
        spec: dict[str, object] = {"token": token}
        if audiences:
            spec["audiences"] = audiences
        status = self._review(_AUTHENTICATION, "TokenReview", spec, _Review[_TokenStatus])
        # A server that does not know of audiences names none, and has not checked them.
        if not status.authenticated or set(audiences) - set(status.audiences or ()):
            return None
        return status.user if status.user.username else None

    def _review_access(self, caller: Caller, access: ReadAccess) -> bool:
        attributes = {"verb": access.verb, "group": "", "version": "v1", "resource": "pods"}
        for field in ("namespace", "name"):
            if getattr(access, field):
                attributes[field] = getattr(access, field)
        spec: dict[str, object] = {
            "user": caller.username,
            "uid": caller.uid,
            "groups": caller.groups or (),
            "extra": caller.extra or {},
            "resourceAttributes": attributes,
        }
        status = self._review(_AUTHORIZATION, "SubjectAccessReview", spec, _Review[_AccessStatus])
        return status.allowed and not status.denied

    def _review(
        self, group: str, kind: str, spec: dict[str, object], answer: type[_Review[_T]]
    ) -> _T:
        with self._lock:
            if not self._rate.has(self._clock()):
                raise TooManyReviews("too many callers at once")
            self._rate.take()
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        plural = f"{kind.lower()}s"
        request = ApiRequest(
            verb="create", path=f"/apis/{group}/v1/{plural}", group=group, resource=plural
        )
        data = self._server.send("POST", request, msgspec.json.encode(body), "application/json")
        try:
            return msgspec.json.decode(data, type=answer).status
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise MemqosError(f"the API server's answer is no {kind}") from None
