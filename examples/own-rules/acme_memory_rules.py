"""What one team wants of its nodes, its clusters and its pods."""

from collections.abc import Iterator

from memqos.audit.cluster_audit import Audit
from memqos.findings.facts import NodeFacts
from memqos.findings.finding import Finding
from memqos.kube.pod import Pod
from memqos.release import Release
from memqos.units import format_bytes

MOST_PODS = 2
LARGEST_NAMESPACE = 8 << 30
OWNER_LABEL = "acme.example/owner"


def check_node(facts: NodeFacts) -> Iterator[Finding]:
    """For memqos doctor: a node runs few pods."""
    if facts.pods >= MOST_PODS:
        yield Finding(
            rule="acme/many-pods",
            severity="warning",
            what="the node runs as many pods as our nodes may",
            where="the node",
            evidence=(f"{facts.pods} pods, at most {MOST_PODS}",),
            fix="move pods to another node",
        )


def check_cluster(audit: Audit) -> Iterator[Finding]:
    """For memqos audit: no namespace requests too much."""
    for namespace in audit.namespaces:
        if namespace.request > LARGEST_NAMESPACE:
            yield Finding(
                rule="acme/large-namespace",
                severity="warning",
                what="a namespace requests more memory than our teams may",
                where=namespace.name,
                evidence=(
                    f"{format_bytes(namespace.request)} requested, "
                    f"at most {format_bytes(LARGEST_NAMESPACE)}",
                ),
                fix="ask the platform team for a larger share",
            )


def check_pod(pod: Pod, namespace: str, release: Release) -> Iterator[Finding]:
    """For memqos admit: an error refuses a pod, anything else warns."""
    if OWNER_LABEL not in (pod.metadata.labels or {}):
        yield Finding(
            rule="acme/owner",
            severity="error",
            what="the pod names no owner",
            where=f"namespace {namespace}",
            evidence=(),
            fix=f"add the label {OWNER_LABEL}",
        )
