"""Reviews of pods: what the mutating and the validating path answer.

The API server has defaulted a pod and filled in limit ranges before it asks, and validates what
comes back. Whatever cannot be judged here is let through or refused as the policy says, never left
without an answer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from memqos.api.defaulting import decoded, prepared
from memqos.api.patch import encoded, pod_level_patch
from memqos.api.pod import Pod
from memqos.api.review import Request, Response, Status, asked
from memqos.api.shape import Shape
from memqos.api.validation import validate
from memqos.cluster.limitrange import Range, mutated
from memqos.cluster.resize import resize
from memqos.errors import InputError, MemqosError
from memqos.findings.policy import Policy, breaches
from memqos.release import Release

ANYWHERE: Final = ""
"""The namespace of limit ranges that hold everywhere."""
_WARNING_SIZE: Final = 240
"""Clients cut warnings that are longer, and the API server drops many of them together."""


class Door(msgspec.Struct, frozen=True):
    """What new pods are held against."""

    policy: Policy
    release: Release
    ranges: Mapping[str, Sequence[Range]] = {}
    """Namespace → limit ranges with defaults for the pod level."""

    def mutate(self, body: bytes | bytearray) -> Response:
        """Answer a review with what the pod lacks at the pod level; InputError if it is none."""
        return self._answer(body, self._completed)

    def validate(self, body: bytes | bytearray) -> Response:
        """Answer a review with a verdict; InputError if it is none."""
        return self._answer(body, self._judged)

    def _answer(self, body: bytes | bytearray, judge: Callable[[Request], Response]) -> Response:
        request = asked(body)
        try:
            return judge(request) if _is_about_a_pod(request) else Response(request.uid, True)
        except (MemqosError, msgspec.ValidationError, RecursionError) as error:
            return self._unjudged(request, str(error))

    def _unjudged(self, request: Request, why: str) -> Response:
        what = f"memqos cannot judge this pod: {why}"
        if self.policy.on_error == "allow":
            return Response(request.uid, True, warnings=(_brief(what),))
        return _refused(request, 500, "InternalError", what)

    def _completed(self, request: Request) -> Response:
        if request.operation != "CREATE" or not self.release.enabled("PodLevelResources"):
            return Response(request.uid, True)
        pod = _pod(request.object)
        read = decoded(pod, self.release)
        ranges = [*self.ranges.get(_namespace(request), ()), *self.ranges.get(ANYWHERE, ())]
        filled = mutated(read, ranges, self.release, pod_defaults=True)
        # Containers are the API server's to fill in: only the pod level is taken over.
        to_store = prepared(msgspec.structs.replace(read, pod=filled.pod), self.release)
        wanted = to_store.pod
        operations = pod_level_patch(_spec(request.object), wanted) if wanted is not None else []
        if not operations:
            return Response(request.uid, True)
        return Response(request.uid, True, patch=encoded(operations), patch_type="JSONPatch")

    def _judged(self, request: Request) -> Response:
        pod = _pod(request.object)
        if request.operation == "CREATE":
            shape = prepared(decoded(pod, self.release), self.release)
            faults = [str(error) for error in validate(pod, shape, self.release)]
        elif request.sub_resource == "resize":
            change = resize(_pod(request.old_object), pod, self.release)
            shape, faults = change.after, [str(error) for error in change.errors]
        else:
            return Response(request.uid, True)
        if faults:
            return _refused(request, 422, "Invalid", "; ".join(faults))
        return self._held_against_policy(request, pod, shape)

    def _held_against_policy(self, request: Request, pod: Pod, shape: Shape) -> Response:
        found = breaches(self.policy, pod, shape, _namespace(request), self.release)
        warnings = tuple([_brief(str(each)) for each in found if each.mode == "warn"])
        refusals = [str(each) for each in found if each.mode == "refuse"]
        if not refusals:
            return Response(request.uid, True, warnings=warnings)
        return _refused(request, 403, "Forbidden", "; ".join(refusals), warnings)


def _is_about_a_pod(request: Request) -> bool:
    return (
        request.kind.group == ""
        and request.kind.kind == "Pod"
        and request.operation in ("CREATE", "UPDATE")
        and request.sub_resource in ("", "resize")
    )


def _namespace(request: Request) -> str:
    return request.namespace or "default"


def _refused(
    request: Request, code: int, reason: str, message: str, warnings: tuple[str, ...] = ()
) -> Response:
    return Response(request.uid, False, Status(code, reason, message), warnings)


def _brief(text: str) -> str:
    return text if len(text) <= _WARNING_SIZE else text[: _WARNING_SIZE - 1] + "…"


_pods: Final = msgspec.json.Decoder(Pod | None)
_plain: Final = msgspec.json.Decoder()


def _pod(raw: msgspec.Raw) -> Pod:
    pod: Pod | None = _pods.decode(raw)
    if pod is None:
        raise InputError("the review holds no object")
    return pod


def _spec(raw: msgspec.Raw) -> dict[str, Any]:
    """`spec` as it came; a pod was decoded from it, so it is an object."""
    spec: dict[str, Any] = _plain.decode(raw).get("spec") or {}
    return spec
