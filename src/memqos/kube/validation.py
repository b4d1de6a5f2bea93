"""Field errors: what the API server refuses about the resources of a new pod."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, Literal

import msgspec

from memqos.errors import InputError
from memqos.kube.aggregate import aggregate_limits, aggregate_requests
from memqos.kube.pod import Container, Pod, ResourceClaim
from memqos.kube.quantity import Raw, milli_of
from memqos.kube.resources import (
    CPU,
    MEMORY,
    POD_LEVEL,
    Amounts,
    hugepage_size,
    is_counted_in_wholes,
    is_dns_label,
    is_extended,
    is_hugepages,
    is_native,
    is_of_containers,
    is_overcommitable,
    is_standard,
    legible,
    qualified_name_faults,
    whole,
)
from memqos.kube.shape import Shape
from memqos.release import Release

ErrorType = Literal[
    "FieldValueRequired",
    "FieldValueInvalid",
    "FieldValueForbidden",
    "FieldValueNotSupported",
    "FieldValueDuplicate",
    "FieldValueNotFound",
]
_MESSAGES: Final[dict[ErrorType, str]] = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotFound": "Not found",
}
_PLAIN: Final = frozenset({CPU, MEMORY})
"""Names that need no check: valid in any stanza."""
_COUNTED_IN_BYTES: Final = frozenset({MEMORY, "ephemeral-storage"})
_MI: Final = 1 << 20


class FieldError(msgspec.Struct, frozen=True):
    """One thing the API server refuses: where, what kind, and why."""

    field: str
    type: ErrorType
    detail: str = ""
    value: str | None = None

    @property
    def message(self) -> str:
        """The error without its field, as Kubernetes words it."""
        value = "" if self.value is None else f' "{self.value}":'
        return f"{_MESSAGES[self.type]}:{value} {self.detail}"

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


NameRule = Callable[[str, str], Iterator[FieldError]]
"""Names the faults of a resource name, given the field and the name."""


def validate(pod: Pod, shape: Shape, release: Release) -> list[FieldError]:
    """All field errors of a pod, given its defaulted shape; empty means valid."""
    return [
        *container_errors(pod),
        *shape_errors(shape, release),
        *claim_errors(pod, release),
    ]


def shape_errors(shape: Shape, release: Release) -> list[FieldError]:
    """Field errors that follow from the resources alone."""
    errors: list[FieldError] = []
    if not shape.containers:
        missing = "a pod needs at least one"
        errors.append(FieldError("spec.containers", "FieldValueRequired", missing))
    for group, parts in (
        ("containers", shape.containers),
        ("initContainers", shape.init_containers),
    ):
        for index, part in enumerate(parts):
            if not _plainly_valid(part.requests, part.limits):
                field = f"spec.{group}[{index}].resources"
                errors += _requirements(field, part.requests, part.limits, _container_name)
    if shape.ephemeral_containers:
        errors.append(
            FieldError(
                "spec.ephemeralContainers",
                "FieldValueForbidden",
                "cannot be set on create: add them to a running pod",
            )
        )
    if shape.overhead:
        errors += _requirements("spec.overhead", {}, shape.overhead, _container_name)
    if shape.pod is not None:
        errors += _pod_level(shape, release)
    return errors


def container_errors(pod: Pod) -> Iterator[FieldError]:
    """Field errors of what every container must have besides resources."""
    spec = pod.spec
    seen: set[str] = set()
    # validateInitContainers(), pkg/apis/core/validation/validation.go, starts with the names of the
    # regular containers: of two with one name the init container is at fault.
    groups: tuple[tuple[str, Iterable[Container]], ...] = (
        ("containers", spec.containers or ()),
        ("initContainers", spec.init_containers or ()),
    )
    for group, containers in groups:
        for index, container in enumerate(containers):
            name = container.name
            if not name:
                yield FieldError(f"spec.{group}[{index}].name", "FieldValueRequired", "is the key")
            elif not is_dns_label(name):
                yield FieldError(
                    f"spec.{group}[{index}].name",
                    "FieldValueInvalid",
                    "is no DNS label: write at most 63 lower-case letters, digits and '-'",
                    name,
                )
            if name and name in seen:
                yield FieldError(
                    f"spec.{group}[{index}].name", "FieldValueDuplicate", "is taken", name
                )
            seen.add(name)
            if not container.image:
                yield FieldError(
                    f"spec.{group}[{index}].image", "FieldValueRequired", "what to run"
                )


def fractional_bytes(pod: Pod) -> Iterator[tuple[str, str, str]]:
    """Bytes that are not whole: the field, the API server's warning, and what is likely meant.

    The pod is created all the same, with the next whole byte (pkg/api/pod/warnings.go, which does
    not look at pod-level resources).
    """
    spec = pod.spec
    stanzas = [("spec.resources", spec.resources)]
    for group, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for index, container in enumerate(containers or ()):
            stanzas.append((f"spec.{group}[{index}].resources", container.resources))
    lists = [("spec.overhead", spec.overhead)]
    for field, stanza in stanzas:
        if stanza is not None:
            lists += [(f"{field}.requests", stanza.requests), (f"{field}.limits", stanza.limits)]
    for field, amounts in lists:
        for name, raw in (amounts or {}).items():
            if name in _COUNTED_IN_BYTES and _is_fraction(raw):
                message = f'fractional byte value "{raw}" is invalid, must be an integer'
                yield f"{field}[{name}]", message, _whole_bytes_hint(raw)


def _whole_bytes_hint(raw: Raw) -> str:
    whole = -(-milli_of(raw) // 1000)
    if whole >= _MI:  # such as 1717986918400m, which autoscalers write for 1.6Gi
        return f"write {whole}, to which it is rounded up"
    number = str(raw).removesuffix("m")
    return f"did you mean {number}M or {number}Mi?" if number != raw else "give whole bytes"


def _is_fraction(raw: Raw) -> bool:
    try:
        return bool(milli_of(raw) % 1000)
    except InputError:  # What is not a quantity is reported where it is read.
        return False


def claim_errors(pod: Pod, release: Release) -> Iterator[FieldError]:
    """Field errors of claims: a container may use those of the pod, the pod level none."""
    spec = pod.spec
    stanzas = []
    if release.is_enabled("DynamicResourceAllocation"):  # else the API server drops them
        for group, containers in (
            ("containers", spec.containers),
            ("initContainers", spec.init_containers),
        ):
            for index, container in enumerate(containers or ()):
                stanzas.append((f"spec.{group}[{index}].resources.claims", container.resources))
    is_windows = spec.os is not None and spec.os.name == "windows"
    if spec.resources is not None and not is_windows and release.is_enabled("PodLevelResources"):
        field = "spec.resources.claims"
        if spec.resources.claims is not None:
            yield FieldError(field, "FieldValueForbidden", "may not be set at pod level")
        stanzas.append((field, spec.resources))
    names = {claim.name for claim in spec.resource_claims or ()}
    for field, resources in stanzas:
        if resources is not None and resources.claims:
            yield from _claim_name_errors(field, resources.claims, names)


# validateResourceClaimNames(), pkg/apis/core/validation/validation.go.
def _claim_name_errors(
    field: str, claims: tuple[ResourceClaim, ...], names: set[str]
) -> Iterator[FieldError]:
    used: set[str] = set()
    for index, claim in enumerate(claims):
        place, name, request = f"{field}[{index}]", claim.name, claim.request
        if not name:
            yield FieldError(place, "FieldValueRequired", "names a claim of the pod")
            continue
        key = f"{name}/{request}" if request else name
        if request and name not in used and not is_dns_label(request):
            yield FieldError(f"{place}.request", "FieldValueInvalid", "is no DNS label", request)
        for _ in range(_claim_uses(name, key, used)):
            yield FieldError(place, "FieldValueDuplicate", "is used already", key)
        used.add(key)
        if name not in names:
            yield FieldError(
                place, "FieldValueNotFound", "must be one of spec.resourceClaims", name
            )


def _claim_uses(name: str, key: str, used: set[str]) -> int:
    """How often a claim, or the request of one, is used already."""
    if name in used or key in used:
        return 1
    return sum(each.startswith(f"{name}/") for each in used) if key == name else 0


def _plainly_valid(requests: Amounts, limits: Amounts) -> bool:
    """A quick yes for the stanzas nearly all pods have; a no means look closer."""
    if not (requests.keys() <= _PLAIN and limits.keys() <= _PLAIN):
        return False
    for name, amount in requests.items():
        if amount < 0 or amount > limits.get(name, amount):
            return False
    return not limits or min(limits.values()) >= 0


def _requirements(
    field: str, requests: Amounts, limits: Amounts, name_faults: NameRule
) -> Iterator[FieldError]:
    """Rules within one stanza."""
    for name, amount in limits.items():
        yield from _amount(f"{field}.limits[{name}]", name, amount, name_faults)
    for name, amount in requests.items():
        yield from _amount(f"{field}.requests[{name}]", name, amount, name_faults)
        if name in limits:
            yield from _against_limit(f"{field}.requests", name, amount, limits[name])
        elif not is_overcommitable(name):
            yield FieldError(
                f"{field}.limits", "FieldValueRequired", f"{name} cannot be overcommitted"
            )
    names = requests.keys() | limits.keys()
    if any(map(is_hugepages, names)) and not names & {CPU, MEMORY}:
        yield FieldError(field, "FieldValueForbidden", "HugePages require cpu or memory")


def _amount(field: str, name: str, amount: int, name_faults: NameRule) -> Iterator[FieldError]:
    yield from name_faults(field, name)
    if amount < 0:
        yield _negative(field, name, amount)
    if is_counted_in_wholes(name) and amount % 1000:
        yield FieldError(field, "FieldValueInvalid", "must be an integer", legible(name, amount))
    if is_hugepages(name):
        size = hugepage_size(name)
        if size is None or whole(amount) % size:
            yield FieldError(
                field,
                "FieldValueInvalid",
                f"is not a positive integer multiple of {name}",
                legible(name, amount),
            )


def _negative(field: str, name: str, amount: int) -> FieldError:
    return FieldError(
        field, "FieldValueInvalid", "must be greater than or equal to 0", legible(name, amount)
    )


def _against_limit(field: str, name: str, request: int, limit: int) -> Iterator[FieldError]:
    if request != limit and not is_overcommitable(name):
        relation = "equal to"
    elif request > limit:
        relation = "less than or equal to"
    else:
        return
    yield FieldError(
        field,
        "FieldValueInvalid",
        f"must be {relation} {name} limit of {legible(name, limit)}",
        legible(name, request),
    )


def _container_name(field: str, name: str) -> Iterator[FieldError]:
    if name in _PLAIN:
        return
    faults = _name_faults(name)
    if "/" not in name:
        if not is_of_containers(name):
            faults = (*faults, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        faults = (*faults, "is not the name of an extended resource")
    for fault in faults:
        yield FieldError(field, "FieldValueInvalid", fault, name)


def _pod_level(shape: Shape, release: Release) -> Iterator[FieldError]:
    assert shape.pod is not None
    field = "spec.resources"
    if shape.windows:
        yield FieldError(field, "FieldValueForbidden", "may not be set for a windows pod")
        return
    requests, limits = shape.pod.requests, shape.pod.limits
    if not _plainly_valid(requests, limits):
        yield from _requirements(field, requests, limits, _pod_level_name(release))
    yield from _covers(f"{field}.requests", requests, aggregate_requests(shape), "requests")
    huge = {name: limit for name, limit in aggregate_limits(shape).items() if is_hugepages(name)}
    yield from _covers(f"{field}.limits", limits, huge, "limits")
    for index, part in enumerate(shape.containers):
        for name, limit in part.limits.items():
            if name in limits and limit > limits[name]:
                yield FieldError(
                    f"{field}.containers[{index}][{name}].limits",
                    "FieldValueInvalid",
                    f"must be less than or equal to pod limits of {legible(name, limits[name])}",
                    legible(name, limit),
                )


def _covers(
    field: str, pod_level: Amounts, of_containers: Amounts, what: str
) -> Iterator[FieldError]:
    """A pod-level value must not be less than its containers need together."""
    for name, needed in of_containers.items():
        if name in pod_level and needed > pod_level[name]:
            yield FieldError(
                f"{field}[{name}]",
                "FieldValueInvalid",
                f"must be greater than or equal to aggregate container {what} of "
                f"{legible(name, needed)}",
                legible(name, pod_level[name]),
            )


def _pod_level_name(release: Release) -> NameRule:
    supported = POD_LEVEL.at(release.minor)

    def faults_of(field: str, name: str) -> Iterator[FieldError]:
        faults = _name_faults(name)
        for fault in faults:
            yield FieldError(field, "FieldValueInvalid", fault, name)
        if not faults and not supported(name):
            yield FieldError(field, "FieldValueNotSupported", "is no pod-level resource", name)

    return faults_of


@lru_cache(maxsize=1024)
def _name_faults(name: str) -> tuple[str, ...]:
    faults = qualified_name_faults(name)
    if not faults and "/" not in name and not is_standard(name):
        return ("must be a standard resource type or fully qualified",)
    return tuple(faults)
