"""reservedMemory must add up to what the node keeps back, and memqos reports to what."""

import pytest
from tests.builders import GI, MI

from memqos.errors import InputError
from memqos.kube.kubelet import MemoryReservation
from memqos.kube.quantity import Quantity
from memqos.numa.machine_state import NumaMemory, empty_node_map
from memqos.numa.reserved_memory import (
    InvalidReservation,
    NumaReservation,
    even_split,
    format_reserved_memory,
    parse_reserved_memory,
    reservations_from_config,
    reserves_no_memory,
    system_reserved,
)

FLAG = "0:hugepages-2Mi=64Mi,memory=1Gi;1:memory=2Gi"
LIST = (
    NumaReservation(0, {"hugepages-2Mi": "64Mi", "memory": "1Gi"}),
    NumaReservation(1, {"memory": "2Gi"}),
)


def quantities(**texts: str) -> dict[str, Quantity]:
    return {name.replace("_", "-"): Quantity.parse(text) for name, text in texts.items()}


def test_both_spellings_mean_the_same() -> None:
    assert parse_reserved_memory(FLAG) == LIST
    assert format_reserved_memory(LIST) == FLAG
    assert parse_reserved_memory("") == ()
    entries = [MemoryReservation(1, {"memory": "2Gi"}), MemoryReservation(0)]
    assert reservations_from_config(entries) == (
        NumaReservation(1, {"memory": "2Gi"}),
        NumaReservation(0),
    )


@pytest.mark.parametrize(
    "text", ["memory=1Gi", "0:memory", "0:cpu=1", "x:memory=1Gi", "0:memory=1GiB", "0:1:memory=1"]
)
def test_a_flag_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_reserved_memory(text)


def test_reservations_that_add_up_are_bytes_by_node() -> None:
    required = quantities(memory="3Gi", hugepages_2Mi="64Mi")
    assert system_reserved([0, 1, 2], LIST, required) == {
        0: {"hugepages-2Mi": 64 * MI, "memory": GI},
        1: {"memory": 2 * GI},
        2: {},
    }


def test_a_sum_that_does_not_add_up_has_both_numbers() -> None:
    refused = system_reserved([0, 1], LIST, quantities(memory="3172Mi"))
    assert isinstance(refused, InvalidReservation)
    assert refused.kind == "total_mismatch"
    assert [(str(m.reserved), m.resource, str(m.required)) for m in refused.mismatches] == [
        ("64Mi", "hugepages-2Mi", "0"),
        ("3Gi", "memory", "3172Mi"),
    ]


def test_a_node_the_machine_does_not_have_is_named() -> None:
    refused = system_reserved([0], LIST, {})
    assert refused == InvalidReservation("numa_node_not_found", nodes=(1,))


def test_the_spelling_of_a_reservation_can_keep_the_kubelet_from_starting() -> None:
    spelled = (NumaReservation(0, {"memory": "1.0Gi"}),)
    refused = system_reserved([0], spelled, quantities(memory="1Gi"))
    assert refused == InvalidReservation("not_an_integer", nodes=(0,), resource="memory")


def test_hugepages_alone_are_no_reservation_of_memory() -> None:
    assert reserves_no_memory({0: {"hugepages-2Mi": MI}, 1: {}})
    assert not reserves_no_memory({0: {}, 1: {"memory": 1}})


def test_a_split_is_even_and_in_whole_mebibytes() -> None:
    nodes = empty_node_map(tuple(NumaMemory(i, 8 * GI) for i in range(3)), {})
    split = even_split(nodes, quantities(memory="1100Mi", cpu="2"))
    assert split is not None
    assert format_reserved_memory(split) == "0:memory=367Mi;1:memory=367Mi;2:memory=366Mi"


def test_a_split_spares_nodes_without_memory_and_keeps_pages_whole() -> None:
    machine = (
        NumaMemory(0, GI, {"hugepages-1Gi": 0}),
        NumaMemory(1, 0, {"hugepages-1Gi": 0}),
        NumaMemory(2, 8 * GI, {"hugepages-1Gi": 3 * GI}),
        NumaMemory(3, 8 * GI, {"hugepages-1Gi": 3 * GI}),
    )
    nodes = empty_node_map(machine, {})
    split = even_split(nodes, quantities(memory="6Gi", hugepages_1Gi="3Gi"))
    assert split is not None
    by_node = {entry.numa_node: entry.limits for entry in split}
    assert by_node[0] == {"memory": "1Gi"}
    assert by_node[2]["memory"] == by_node[3]["memory"] == "2560Mi"
    assert sorted([by_node[2]["hugepages-1Gi"], by_node[3]["hugepages-1Gi"]], key=str) == [
        "1Gi", "2Gi",
    ]  # fmt: skip
    assert isinstance(
        system_reserved(list(nodes), split, quantities(memory="6Gi", hugepages_1Gi="3Gi")), dict
    )


def test_a_machine_too_small_for_its_reservations_cannot_be_split() -> None:
    nodes = empty_node_map((NumaMemory(0, GI),), {})
    assert even_split(nodes, quantities(memory="2Gi")) is None
    assert even_split(nodes, quantities(memory="1500m")) is None
