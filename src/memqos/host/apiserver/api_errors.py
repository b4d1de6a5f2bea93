"""Errors of an API server in words, with what helps: for a missing right, the RBAC rule."""

import os
import re
from traceback import extract_tb
from typing import Final

import msgspec

from memqos.errors import Unreachable
from memqos.host.apiserver.resources import ApiRequest

FORBIDDEN: Final = 403
GONE: Final = 410
BUSY: Final = frozenset({429, 500, 502, 503, 504})
"""Answers after which a retry may succeed."""
_TERMINATING: Final = "NamespaceTerminating"
_USER: Final = re.compile(r'User "([^"]*)"')
_SECONDS: Final = re.compile(r"[0-9]{1,6}")
_MANY: Final = 999_999
_SHOWN: Final = 300
_TOGETHER: Final = (("get", "list", "watch"), ("create", "patch"))
"""Verbs that are granted together: a client that needs one soon needs the others."""


class ApiError(Unreachable):
    """The server answered with an error."""

    def __init__(
        self,
        what: str,
        *,
        status: int,
        retry_after: float | None = None,
        is_version_ahead: bool = False,
        is_namespace_terminating: bool = False,
        hint: str | None = None,
        snippet: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what, hint=hint, snippet=snippet)
        self.status = status
        self.retry_after = retry_after
        """Seconds."""
        self.is_version_ahead = is_version_ahead
        """Whether the requested resourceVersion is newer than the server's."""
        self.is_namespace_terminating = is_namespace_terminating
        """Whether the namespace is being deleted, so that nothing can be created in it."""


class _Cause(msgspec.Struct, frozen=True):
    reason: str | None = None


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[_Cause, ...] | None = None
    retry_after_seconds: int | None = None


class ApiStatus(msgspec.Struct, frozen=True):
    """A Kubernetes Status: the body of an error, or of an ERROR event in a watch."""

    message: str | None = None
    reason: str | None = None
    details: _Details | None = None
    code: int | None = None


def status_of(body: bytes) -> ApiStatus:
    """The Status in the body of an error; its text where the body is no Status."""
    try:
        return msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ApiStatus(message=body.decode("utf-8", "replace").strip())


def api_error(
    where: str, request: ApiRequest, code: int, status: ApiStatus, retry_after: str | None = None
) -> ApiError:
    """The error for an answer that is no success."""
    what, hint = _describe_status(request, code, status)
    return ApiError(
        f"{where}: {what}",
        status=code,
        retry_after=_seconds(retry_after, status),
        # Sent with 504 where the watch cache does not reach the version within 3 s (apiserver
        # storage/errors.go, NewTooLargeResourceVersionError): a retry at once does not help.
        is_version_ahead=_has_cause(status, "ResourceVersionTooLarge"),
        is_namespace_terminating=_has_cause(status, _TERMINATING),
        hint=hint,
        snippet=rbac_rule(request) if _lacks_right(request, code, status) else (),
    )


def unforeseen_error(where: str, error: Exception) -> Unreachable:
    """What no answer explains: where it was raised, without its text, which may quote a secret."""
    *_, last = extract_tb(error.__traceback__)
    kind, file = type(error).__name__, os.path.basename(last.filename)
    return Unreachable(f"{where}: {kind} in {file}, line {last.lineno}")


def rbac_rule(request: ApiRequest) -> tuple[str, ...]:
    """The RBAC rule that grants a request, as it stands in a Role or ClusterRole."""
    verbs = next((each for each in _TOGETHER if request.verb in each), (request.verb,))
    return (
        f'    - apiGroups: ["{request.group}"]',
        f'      resources: ["{request.resource}"]',
        f"      verbs: [{', '.join(verbs)}]",
    )


def _describe_status(request: ApiRequest, code: int, status: ApiStatus) -> tuple[str, str | None]:
    message = (status.message or "").strip()[:_SHOWN]
    if code == 401:
        return "it rejects the credentials (401)", "log in again, or check the user of the context"
    if _lacks_right(request, code, status):
        return _forbidden(request, message)
    if code == FORBIDDEN and _has_cause(status, _TERMINATING):
        return f"namespace {request.namespace} is being deleted (403)", None
    if code == FORBIDDEN:
        return (
            f"the user may not {request.verb} {request} (403)",
            "ask an administrator for the right to",
        )
    if code == 404:
        return f"there is no {request} (404)", "check the name, the namespace and the context"
    if code == GONE:
        return f"that resourceVersion of {request} has expired (410)", None
    if code == 429:
        return f"it is too busy (429) to {request.verb} {request}", "try again later"
    return f"it answered {code} to {request.verb} {request}" + (
        f": {message}" if message else ""
    ), "check the API server's log"


def _forbidden(request: ApiRequest, message: str) -> tuple[str, str]:
    user = _USER.search(message)
    who = user[1] if user else "the user"
    where = f"namespace {request.namespace}" if request.namespace else "the whole cluster"
    kind = "Role" if request.namespace else "ClusterRole"
    return (
        f"{who} may not {request.verb} {request.resource} in {where} (403)",
        f"a {kind} with this rule grants it:",
    )


def _lacks_right(request: ApiRequest, code: int, status: ApiStatus) -> bool:
    """Whether an RBAC rule would grant the request."""
    return code == FORBIDDEN and bool(request.resource) and not _has_cause(status, _TERMINATING)


def _seconds(header: str | None, status: ApiStatus) -> float | None:
    """How long to wait by the server's answer: whole seconds. Other forms are ignored."""
    if header is not None:
        return float(header) if _SECONDS.fullmatch(header.strip()) else None
    seconds = status.details.retry_after_seconds if status.details is not None else None
    return float(min(seconds, _MANY)) if seconds and seconds > 0 else None


def _has_cause(status: ApiStatus, reason: str) -> bool:
    causes = (status.details.causes if status.details is not None else None) or ()
    return any(cause.reason == reason for cause in causes)
