"""Quantities, pods and settings to check properties over.

Pods are mostly valid: requests stay within limits, and a pod level mostly covers its containers.
Those that are not are for the properties of validation.
"""

from itertools import combinations_with_replacement, product
from typing import Final

from hypothesis import strategies as st
from tests.builders import GI, MI, Json, node_settings, pod, stanza

from memqos.kube.quantity import Quantity
from memqos.release import NEWEST, OLDEST, Release
from memqos.settings.settings import Policy, Settings

LARGEST: Final = 1 << 50
"""Bytes. Doubles hold every whole number up to here, pages and factors included."""

HUGE: Final = "hugepages-2Mi"

# Quantities

_DIGITS: Final = st.text("0123456789", min_size=1, max_size=12)
numbers: Final = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    _DIGITS,
    st.just("") | _DIGITS.map(".{}".format),
)
"""Numbers of a quantity, still without a suffix."""

_SUFFIXES: Final = st.sampled_from([*"numkMGTPE", "", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
_EXPONENTS: Final = st.integers(-12, 12).map("e{}".format)

quantity_texts: Final = st.builds("{}{}".format, numbers, _SUFFIXES | _EXPONENTS)
"""Texts that are quantities."""

quantities: Final = quantity_texts.map(Quantity.parse_bare)

# Pods. Tables of likely values keep the draws few, and few draws keep the search quick.

_BYTES: Final = ["0", "400u", "1", "1500m", "4096", "8191", "100M", "1Gi", "1048577Ki", "3Gi"]
_CPU: Final = ["0", "1m", "250m", "2"]


Sides = tuple[object, object]
"""A request and a limit of one resource, None where there is none."""


def _sides(values: list[str]) -> st.SearchStrategy[Sides]:
    """Nothing, a request, a limit, or both with the request not above the limit."""
    return st.one_of(
        st.just((None, None)),
        st.sampled_from([(value, None) for value in values]),
        st.sampled_from([(None, value) for value in values]),
        st.sampled_from(list(combinations_with_replacement(values, 2))),
    )


_MEMORY_SIDES: Final = _sides(_BYTES) | st.lists(
    st.integers(0, LARGEST), min_size=2, max_size=2
).map(lambda pair: (min(pair), max(pair)))
_CPU_SIDES: Final = _sides(_CPU)
_STANZAS: Final = st.builds(
    lambda memory, cpu, huge: stanza(*memory, cpu=cpu, limits={HUGE: huge}),
    _MEMORY_SIDES,
    _CPU_SIDES,
    st.sampled_from([None, None, None, None, "4Mi", "0"]),
)

_GUARANTEED: Final = stanza("1Gi", "1Gi", cpu=("2", "2"))

containers: Final = (_STANZAS | _STANZAS | st.just(_GUARANTEED)).map(
    lambda resources: {"resources": resources}
)
"""Containers as plain data, still without a name."""

_INIT_CONTAINERS: Final = st.builds(
    lambda container, kind: container | kind,
    containers,
    st.sampled_from([{}, {"restartPolicy": "Always"}]),
)
_ROOMY: Final = {"memory": 8 * LARGEST, "cpu": 100, HUGE: 8 * GI}


def _roomy(resources: Json) -> Json:
    """The same resources, but as much of each as any containers here may need."""
    return {side: {name: _ROOMY[name] for name in amounts} for side, amounts in resources.items()}


_POD_LEVELS: Final[st.SearchStrategy[Json | None]] = st.one_of(
    st.none(),
    st.just({}),
    _STANZAS.map(_roomy),
    st.just(stanza(6 * LARGEST, 8 * LARGEST)),
    _STANZAS,
)
_OVERHEADS: Final = st.sampled_from([None, None, {"memory": "120Mi", "cpu": "250m"}, {"memory": 1}])
_PRIORITIES: Final = st.sampled_from([None, None, None, "system-node-critical"])

pods: Final = st.builds(
    pod,
    st.lists(containers, min_size=1, max_size=2),
    init=st.lists(_INIT_CONTAINERS, max_size=2),
    resources=_POD_LEVELS,
    overhead=_OVERHEADS,
    priorityClassName=_PRIORITIES,
)
"""Pods with init containers, sidecars, pod-level resources and overhead."""

# Settings

_SETTABLE: Final = {
    OLDEST: (),
    28: ("SidecarContainers",),
    32: ("PodLevelResources",),
    37: (
        "PodLevelResources",
        "PodLevelResourcesFixDefaulting",
        "PodLevelResourcesFixKubeletQOSClass",
    ),
}
"""Gates that change what a pod is, where a release lets one set them."""


def _with_gates(minor: int) -> list[Release]:
    gates = _SETTABLE[max(since for since in _SETTABLE if since <= minor)]
    return [
        Release.of(minor, {"MemoryQoS": True, **dict(zip(gates, choice, strict=True))})
        for choice in product((True, False), repeat=len(gates))
    ]


def releases(oldest: int = OLDEST) -> st.SearchStrategy[Release]:
    """Any release from the oldest on, its gates set in any way, MemoryQoS on."""
    minors = range(NEWEST, oldest - 1, -1)
    return st.sampled_from([release for minor in minors for release in _with_gates(minor)])


_POLICIES: Final[list[Policy]] = ["None", "TieredReservation", "HardReservation"]
_FACTORS: Final = st.sampled_from([0.9, None, 0.1, 0.8, 1.0]) | st.floats(0.01, 1)
_MEMORY: Final = st.sampled_from([64 * GI, 5 * GI, 100 * MI, 4097]) | st.integers(1, LARGEST)


def settings_strategy(
    oldest: int = OLDEST, *, node: bool | None = None
) -> st.SearchStrategy[Settings]:
    """Settings with MemoryQoS on; with or without a node, unless `node` decides."""
    facts = {True: _MEMORY, False: st.none(), None: st.none() | _MEMORY}[node]
    return st.builds(
        lambda release, **more: node_settings(str(release), gates=dict(release.gates), **more),
        releases(oldest),
        factor=_FACTORS,
        policy=st.sampled_from(_POLICIES),
        capacity=facts,
        allocatable=facts,
        page_size=st.sampled_from([4096, 65536]),
    )


# Pods of any readable quantity under any name: what validation has to bear

_ODD_QUANTITIES: Final = st.one_of(
    quantity_texts,
    st.none(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
_ODD_NAMES: Final = st.one_of(
    st.sampled_from(
        [
            *("cpu", "memory", HUGE, "hugepages-1Gi", "hugepages-0", "ephemeral-storage"),
            *("pods", "requests.memory", "kubernetes.io/x", "example.com/gpu"),
            *("", "/", "a/b/c", f"x/{'y' * 64}"),
        ]
    ),
    st.text(max_size=8),
)
_ODD_LISTS: Final = st.none() | st.dictionaries(_ODD_NAMES, _ODD_QUANTITIES, max_size=3)
_ODD_STANZAS: Final = st.none() | st.fixed_dictionaries(
    {}, optional={"requests": _ODD_LISTS, "limits": _ODD_LISTS}
)
_ODD_CONTAINERS: Final = st.builds(
    lambda resources, more: {"resources": resources, **more},
    _ODD_STANZAS,
    st.sampled_from(
        [{}, {"restartPolicy": "Always"}, {"name": ""}, {"name": "a"}, {"image": None}]
    ),
)

odd_pods: Final = st.builds(
    pod,
    st.lists(_ODD_CONTAINERS, min_size=1, max_size=2),
    init=st.lists(_ODD_CONTAINERS, max_size=2),
    ephemeral=st.lists(_ODD_CONTAINERS, max_size=1),
    resources=_ODD_STANZAS,
    overhead=_ODD_LISTS,
    os=st.sampled_from([None, {"name": "linux"}, {"name": "windows"}]),
)
