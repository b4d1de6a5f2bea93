"""Quantities, pods and terms for properties to hold over.

Pods are mostly valid: requests stay within limits, and a pod level mostly covers its containers.
Those that are not are for the properties of validation.
"""

from typing import Final

from hypothesis import strategies as st

from memqos.api.pod import Pod
from memqos.api.quantity import Quantity
from memqos.plan.terms import Policy, Terms
from memqos.release import NEWEST, OLDEST, Release
from tests.builders import GI, MI, Json, pod, terms

LARGEST: Final = 1 << 50
"""Bytes. Doubles hold every whole number up to here, pages and factors included."""

GATES: Final = (
    "MemoryQoS",
    "PodLevelResources",
    "PodLevelResourcesFixDefaulting",
    "PodLevelResourcesFixKubeletQOSClass",
)

BYTES: Final = st.one_of(
    st.just(0),
    st.integers(1, 8192),
    st.integers(0, 64).map(lambda pages: pages * 4096),
    st.integers(0, 64).map(lambda size: size * MI),
    st.integers(0, LARGEST),
)
MILLI_CPU: Final = st.integers(0, 64_000)
HUGE: Final = "hugepages-2Mi"

_DIGITS: Final = st.text("0123456789", min_size=1, max_size=12)
_NUMBERS: Final = st.builds(
    "{}{}{}".format, st.sampled_from(["", "-", "+"]), _DIGITS, st.just("") | _DIGITS.map(".{}".format)
)
_SUFFIXES: Final = st.sampled_from([*"numkMGTP", "", "E", *"Ki Mi Gi Ti Pi Ei".split()])
_EXPONENTS: Final = st.integers(-12, 12).map(lambda exponent: f"e{exponent}")

quantity_texts: Final = st.builds(str.__add__, _NUMBERS, st.one_of(_SUFFIXES, _EXPONENTS))
"""Texts that are quantities."""

quantities: Final = quantity_texts.map(Quantity.parse_bare)


@st.composite
def _amounts(draw: st.DrawFn) -> tuple[Json, Json]:
    """Requests and limits, each resource on either side, both or none; limits cover requests."""
    requests: Json = {}
    limits: Json = {}
    # Parts of a byte are rare but lawful, and rounding them is part of the rules.
    for name, units, values in (("memory", ["", "", "m", "u"], BYTES), ("cpu", ["m"], MILLI_CPU)):
        request, limit = sorted((draw(values), draw(values)))
        unit = draw(st.sampled_from(units))
        sides = draw(st.sampled_from(["", "request", "limit", "both", "equal"]))
        if sides in ("request", "both", "equal"):
            requests[name] = f"{request}{unit}"
        if sides in ("limit", "both"):
            limits[name] = f"{limit}{unit}"
        if sides == "equal":
            limits[name] = requests[name]
    if (requests or limits) and draw(st.integers(0, 5)) == 0:
        limits[HUGE] = f"{2 * draw(st.integers(0, 8))}Mi"
    return requests, limits


@st.composite
def containers(draw: st.DrawFn) -> Json:
    requests, limits = draw(_amounts())
    return {"resources": {"requests": requests, "limits": limits}} if requests or limits else {}


@st.composite
def _init_containers(draw: st.DrawFn) -> Json:
    container: Json = draw(containers())
    return container | {"restartPolicy": "Always"} if draw(st.booleans()) else container


@st.composite
def _pod_level(draw: st.DrawFn) -> Json | None:
    """None, an empty stanza, or one that is mostly large enough for any container."""
    kind = draw(st.sampled_from(["none", "none", "empty", "any", "roomy", "roomy"]))
    if kind == "none":
        return None
    if kind == "empty":
        return {}
    requests, limits = draw(_amounts())
    if kind == "roomy":
        roomy = {"memory": 16 * LARGEST, "cpu": 1000, HUGE: 8 * GI}
        requests = {name: roomy[name] for name in requests}
        limits = {name: roomy[name] for name in limits}
    return {"requests": requests, "limits": limits}


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Pods with init containers, sidecars, pod-level resources and overhead."""
    overhead = draw(
        st.one_of(
            st.none(), st.fixed_dictionaries({"memory": BYTES}, optional={"cpu": st.just("250m")})
        )
    )
    return pod(
        draw(st.lists(containers(), min_size=1, max_size=3)),
        init=draw(st.lists(_init_containers(), max_size=3)),
        resources=draw(_pod_level()),
        overhead=overhead,
        priorityClassName=draw(st.sampled_from([None, None, None, "system-node-critical"])),
    )


@st.composite
def releases(draw: st.DrawFn, oldest: int = OLDEST) -> Release:
    """Any release, with the gates that matter set where the release lets one."""
    minor = draw(st.integers(oldest, NEWEST))
    known = GATES if minor >= 37 else GATES[:2] if minor >= 32 else GATES[:1]
    gates = {name: draw(st.booleans()) for name in known}
    return Release.of(minor, gates | {"MemoryQoS": True})


@st.composite
def all_terms(draw: st.DrawFn, oldest: int = OLDEST, *, node: bool | None = None) -> Terms:
    """Terms with MemoryQoS on; a node's facts are there or not, unless `node` says which."""
    release = draw(releases(oldest))
    policies: list[Policy] = ["None", "TieredReservation", "HardReservation"]
    has_node = draw(st.booleans()) if node is None else node
    return terms(
        str(release),
        gates=dict(release.gates),
        factor=draw(st.one_of(st.none(), st.sampled_from([0.1, 0.8, 0.9, 1.0]), st.floats(0.01, 1))),
        policy=draw(st.sampled_from(policies)),
        capacity=draw(st.integers(1, LARGEST)) if has_node else None,
        allocatable=draw(st.integers(0, LARGEST)) if has_node else None,
        page_size=draw(st.sampled_from([4096, 65536])),
    )


_ODD_QUANTITIES: Final = st.one_of(
    quantity_texts, st.none(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)
)
_ODD_NAMES: Final = st.one_of(
    st.sampled_from(["cpu", "memory", HUGE, "hugepages-1Gi", "hugepages-0", "ephemeral-storage"]),
    st.sampled_from(["example.com/gpu", "kubernetes.io/x", "requests.memory", "pods", "", "/", "a/b/c"]),
    st.text(max_size=12),
    st.text(min_size=60, max_size=70, alphabet="ab/.-").map(lambda text: f"x/{text}"),
)
_ODD_LISTS: Final = st.one_of(st.none(), st.dictionaries(_ODD_NAMES, _ODD_QUANTITIES, max_size=4))
_ODD_STANZAS: Final = st.one_of(
    st.none(), st.fixed_dictionaries({}, optional={"requests": _ODD_LISTS, "limits": _ODD_LISTS})
)
_ODD_CONTAINERS: Final = st.lists(
    st.fixed_dictionaries(
        {"resources": _ODD_STANZAS},
        optional={
            "name": st.sampled_from(["", "a", "b"]),
            "image": st.none(),
            "restartPolicy": st.sampled_from(["Always", "Never", ""]),
        },
    ),
    max_size=3,
)


@st.composite
def odd_pods(draw: st.DrawFn) -> Pod:
    """Pods of any readable quantity under any name: what validation has to bear."""
    return pod(
        draw(_ODD_CONTAINERS),
        init=draw(_ODD_CONTAINERS),
        ephemeral=draw(_ODD_CONTAINERS),
        resources=draw(_ODD_STANZAS),
        overhead=draw(_ODD_LISTS),
        os=draw(st.sampled_from([None, {"name": "linux"}, {"name": "windows"}])),
    )
