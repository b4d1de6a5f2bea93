"""Rules about NUMA memory: who asked for it and does not get it."""

from collections.abc import Iterator

from memqos.findings.facts import NodeFacts
from memqos.findings.finding import Finding
from memqos.numa.unaligned import UNALIGNED_NOTICE, UNALIGNED_REMEDY


def check_numa_alignment(facts: NodeFacts) -> Iterator[Finding]:
    """Guaranteed pods with pod-level resources look aligned under Static, and are not."""
    for pod in () if facts.planned is None else facts.planned.unaligned:
        yield Finding(
            "numa/pod-level",
            "warning",
            UNALIGNED_NOTICE,
            pod,
            ("the pod sets spec.resources, and memoryManagerPolicy is Static",),
            UNALIGNED_REMEDY,
        )
