"""reservedMemory as a kubelet's configuration and its flag spell it, and the sum behind it."""

from memqos.kube.resources import MEMORY
from memqos.numa.equation import ReservationEquation
from memqos.numa.reserved import NumaReservations, format_reserved_memory


def equation_words(equation: ReservationEquation) -> str:
    """The sum, term by term."""
    return (
        f"kubeReserved {equation.kube.legible} + systemReserved {equation.system.legible} + "
        f"evictionHard memory.available {equation.eviction.legible} = {equation.total.legible}"
    )


def reserved_memory_yaml(
    reservations: NumaReservations, equation: ReservationEquation
) -> list[str]:
    """YAML to paste into a KubeletConfiguration, with the flag as a comment."""
    lines = [f"# {equation_words(equation)}", "reservedMemory:"]
    lines += [
        f"- {{numaNode: {entry.numa_node}, limits: {{{MEMORY}: {entry.limits[MEMORY]}}}}}"
        for entry in reservations
    ]
    return [*lines, f"# or --reserved-memory='{format_reserved_memory(reservations)}'"]
