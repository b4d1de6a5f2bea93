"""Rules about effective protection: where it is lost, and who gets it without a claim."""

from collections.abc import Iterator, Mapping
from typing import Final

from memqos.findings.catalogue import (
    PROTECTION_LOST_LOW,
    PROTECTION_LOST_MIN,
    PROTECTION_UNASKED_LOW,
    PROTECTION_UNASKED_MIN,
    PROTECTION_UNKNOWN,
    RuleInfo,
)
from memqos.findings.facts import NodeFacts, file_number
from memqos.findings.finding import Finding
from memqos.plan.effective import (
    Claim,
    ClaimAmount,
    ClaimShare,
    Knob,
    Protection,
    because,
    effective,
)
from memqos.plan.setting import MAX
from memqos.units import format_exact_bytes

_KNOBS: Final[tuple[Knob, ...]] = ("min", "low")
_LOST: Final[Mapping[Knob, RuleInfo]] = {"min": PROTECTION_LOST_MIN, "low": PROTECTION_LOST_LOW}
_UNREQUESTED: Final[Mapping[Knob, RuleInfo]] = {
    "min": PROTECTION_UNASKED_MIN,
    "low": PROTECTION_UNASKED_LOW,
}
_SIGNIFICANT_SHARE: Final = 0.01
"""Of what is claimed: dividing among siblings loses a page here and there."""


def check_protection(facts: NodeFacts) -> Iterator[Finding]:
    """What the kernel honours of memory.min and memory.low, by what is in use."""
    claims = cgroup_claims(facts)
    if not claims:
        if any(
            file_number(files, f"memory.{k}") for files in facts.cgroups.values() for k in _KNOBS
        ):
            yield Finding(
                PROTECTION_UNKNOWN.id,
                "info",
                "it is unknown how much of the protection is honoured: that depends on usage",
                "/",
                ("no memory.current is known",),
                "run memqos doctor on the node, or take a new snapshot",
            )
        return
    recursive = bool(facts.machine.recursive_protection)
    honoured = effective(claims, recursive=recursive, page_size=facts.page_size)
    receiving = {path: honoured[path] for path in _recipients(facts, claims)}
    for knob in _KNOBS:
        yield from _lost_protection(facts, knob, claims, honoured)
        yield from _unrequested_protection(facts, knob, claims, receiving)


def cgroup_claims(facts: NodeFacts) -> dict[str, Claim]:
    """What every cgroup claims and uses; those removed while being read are skipped."""
    claims: dict[str, Claim] = {}
    for path in sorted(facts.cgroups, key=lambda path: path.count("/")):
        files, parent = facts.cgroups[path], path.rpartition("/")[0]
        usage = file_number(files, "memory.current")
        if path != "/" and usage is not None and (not parent or parent in claims):
            claims[path] = Claim(
                _parse_claim(files.get("memory.min")), _parse_claim(files.get("memory.low")), usage
            )
    return claims


def _lost_protection(
    facts: NodeFacts, knob: Knob, claims: Mapping[str, Claim], honoured: Mapping[str, Protection]
) -> Iterator[Finding]:
    losers: dict[str, list[str]] = {}
    for path, claim in claims.items():
        share = _knob_share(honoured[path], knob)
        claimed = min(_claim_bytes(claim, knob), claim.usage)
        if share.taken_by is not None and share.lost > claimed * _SIGNIFICANT_SHARE:
            losers.setdefault(share.taken_by, []).append(path)
    for taker, paths in losers.items():
        above = {path.rpartition("/")[0] for path in paths}
        lowest = [path for path in paths if path not in above]
        total = sum(_knob_share(honoured[path], knob).lost for path in lowest)
        yield Finding(
            _LOST[knob].id,
            "warning",
            f"memory.{knob} below {taker} is not honoured: "
            f"{format_exact_bytes(total)} in use are "
            "unprotected",
            taker,
            (
                because(lowest[0], knob, claims, honoured),
                *(
                    f"{facts.display_name(path)} claims "
                    f"{format_exact_bytes(_claim_bytes(claims[path], knob))}, "
                    f"loses {format_exact_bytes(_knob_share(honoured[path], knob).lost)}"
                    for path in lowest
                ),
            ),
            f"raise memory.{knob} of {taker} to the sum over its children; a kubelet that has "
            f"just restarted does so within minutes",
        )


def _recipients(facts: NodeFacts, claims: Mapping[str, Claim]) -> Iterator[str]:
    """Pods and reservations for the system, whose claim covers all within; elsewhere the leaves."""
    above = {path.rpartition("/")[0] for path in claims}
    whole = tuple(path for path in claims if facts.is_pod(path) or facts.is_reserved(path))
    within = tuple(f"{each}/" for each in whole)
    yield from whole
    yield from (path for path in claims.keys() - above - set(whole) if not path.startswith(within))


def _unrequested_protection(
    facts: NodeFacts, knob: Knob, claims: Mapping[str, Claim], shares: Mapping[str, Protection]
) -> Iterator[Finding]:
    """Protection is left over where a claim is not in use, and where more is claimed above than
    below; exact sums help against the second alone."""
    given = {path: _knob_share(each, knob).unclaimed for path, each in shares.items()}
    given = {path: amount for path, amount in given.items() if amount}
    # Protection is handed down, never sideways: it stays below the same child of the root.
    tops = set(map(_top_level_cgroup, given))
    near = {path: claim for path, claim in claims.items() if _top_level_cgroup(path) in tops}
    unused = _claims_not_in_use(knob, near, shares)
    surplus = _surplus_claims(knob, near, shares)
    if not unused and not surplus:
        return
    most = _largest_first(given)
    yield Finding(
        _UNREQUESTED[knob].id,
        _UNREQUESTED[knob].severity,
        f"memory_recursiveprot passes {format_exact_bytes(sum(given.values()))} of "
        f"memory.{knob} to pods or other cgroups that did not request it: {len(given)}",
        _common_ancestor(list(most)),
        (
            *(
                f"{facts.display_name(path)}: {format_exact_bytes(amount)}"
                for path, amount in most.items()
            ),
            *(
                f"{facts.display_name(path)} claims "
                f"{format_exact_bytes(_claim_bytes(claims[path], knob))}, "
                f"{format_exact_bytes(amount)} of it unused"
                for path, amount in unused.items()
            ),
            *(
                f"{path} claims {format_exact_bytes(_claim_bytes(claims[path], knob))}, "
                f"{format_exact_bytes(amount)} more than its children claim"
                for path, amount in surplus.items()
            ),
        ),
        "; ".join(_remedies(facts, knob, claims, unused, surplus)),
    )


def _claims_not_in_use(
    knob: Knob, claims: Mapping[str, Claim], shares: Mapping[str, Protection]
) -> dict[str, int]:
    """What is claimed and not in use. A child of the root leaves nothing to its siblings."""
    found = {}
    for path in shares.keys() & claims.keys():
        claim = _claim_bytes(claims[path], knob)
        if path.count("/") > 1 and claim - claims[path].usage > claim * _SIGNIFICANT_SHARE:
            found[path] = claim - claims[path].usage
    return _largest_first(found)


def _surplus_claims(
    knob: Knob, claims: Mapping[str, Claim], shares: Mapping[str, Protection]
) -> dict[str, int]:
    """What cgroups above pods claim beyond the sum of the claims below."""
    below: dict[str, int] = {}
    for path, claim in claims.items():
        parent = path.rpartition("/")[0]
        below[parent] = below.get(parent, 0) + _claim_bytes(claim, knob)
    within = tuple(f"{path}/" for path in shares)
    found = {}
    for path in below.keys() & claims.keys() - shares.keys():
        own = _claim_bytes(claims[path], knob)
        if own - below[path] > own * _SIGNIFICANT_SHARE and not path.startswith(within):
            found[path] = own - below[path]
    return _largest_first(found)


def _remedies(
    facts: NodeFacts,
    knob: Knob,
    claims: Mapping[str, Claim],
    unused: Mapping[str, int],
    surplus: Mapping[str, int],
) -> Iterator[str]:
    if unused:
        yield (
            "lower the memory requests of pods that request more than they use, "
            f"{facts.display_name(next(iter(unused)))} first, or under memqos agent give "
            "such pods the "
            "annotation memqos.io/reservation: None"
        )
    for path, more in surplus.items():
        if _is_kubelet_value(facts, path, knob):
            yield (
                f"{path} has the value that Kubernetes sets: use memoryReservationPolicy: None, "
                f"or memqos agent, which sets exact sums, with the kubelet's gate MemoryQoS off"
            )
        else:
            exact = format_exact_bytes(_claim_bytes(claims[path], knob) - more)
            yield f"lower memory.{knob} of {path} to {exact}, the sum over its children"


def _is_kubelet_value(facts: NodeFacts, path: str, knob: Knob) -> bool:
    """Whether a kubelet with the feature on keeps just the value that is there."""
    planned = facts.planned
    if planned is None or not planned.memory_qos or path not in planned.tree.cgroups:
        return False
    file = f"memory.{knob}"
    changes = planned.comparison.changes
    return file in planned.tree.cgroups[path].settings and not any(
        (change.path, change.file) == (path, file) for change in changes
    )


def _largest_first(amounts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(amounts.items(), key=lambda each: (-each[1], each[0])))


def _top_level_cgroup(path: str) -> str:
    """The child of the root that holds a cgroup."""
    return path.split("/", 2)[1]


def _common_ancestor(paths: list[str]) -> str:
    """The lowest cgroup that holds all of them."""
    shared = []
    for parts in zip(*(path.split("/")[1:-1] for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/" + "/".join(shared)


def _knob_share(protection: Protection, knob: Knob) -> ClaimShare:
    return protection.min if knob == "min" else protection.low


def _claim_bytes(claim: Claim, knob: Knob) -> int:
    value = claim.min if knob == "min" else claim.low
    return claim.usage if value == "max" else value


def _parse_claim(content: str | None) -> ClaimAmount:
    text = (content or "").strip()
    if text == MAX:
        return "max"
    return int(text) if text.isdigit() else 0
