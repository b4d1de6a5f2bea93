"""Rules about effective protection: where it is lost on the way down, and who gets it unasked."""

from collections.abc import Iterator, Mapping
from typing import Final

from memqos.findings.facts import Facts, amount
from memqos.findings.finding import Finding, Severity
from memqos.plan.effective import Amount, Claim, Knob, Protection, Share, because, effective
from memqos.plan.setting import MAX, size

_KNOBS: Final[tuple[Knob, ...]] = ("min", "low")
_UNASKED: Final[Mapping[Knob, Severity]] = {"min": "warning", "low": "info"}
"""Nothing takes back what memory.min holds; memory.low gives way in need."""
_WORTH_TELLING: Final = 0.01
"""Of what is claimed: dividing among siblings loses a page here and there."""


def protection(facts: Facts) -> Iterator[Finding]:
    """What the kernel honours of memory.min and memory.low, by what is in use."""
    claims = claims_of(facts)
    if not claims:
        if any(amount(files, f"memory.{k}") for files in facts.cgroups.values() for k in _KNOBS):
            yield Finding(
                "protection/unknown",
                "info",
                "how much of the protection is honoured is not known: it depends on what is in use",
                "/",
                ("no memory.current is known",),
                "run memqos doctor on the node, or take a new snapshot",
            )
        return
    recursive = bool(facts.machine.recursive_protection)
    honoured = effective(claims, recursive=recursive, page_size=facts.page_size)
    receiving = {path: honoured[path] for path in _receiving(facts, claims)}
    for knob in _KNOBS:
        yield from _lost(facts, knob, claims, honoured)
        yield from _unasked(facts, knob, receiving)


def claims_of(facts: Facts) -> dict[str, Claim]:
    """What every cgroup claims and uses; those that vanished while being read are left out."""
    claims: dict[str, Claim] = {}
    for path in sorted(facts.cgroups, key=lambda path: path.count("/")):
        files, parent = facts.cgroups[path], path.rpartition("/")[0]
        usage = amount(files, "memory.current")
        if path != "/" and usage is not None and (not parent or parent in claims):
            claims[path] = Claim(
                _claim(files.get("memory.min")), _claim(files.get("memory.low")), usage
            )
    return claims


def _lost(
    facts: Facts, knob: Knob, claims: Mapping[str, Claim], honoured: Mapping[str, Protection]
) -> Iterator[Finding]:
    losers: dict[str, list[str]] = {}
    for path, claim in claims.items():
        share = _share(honoured[path], knob)
        asked = min(_bytes(claim, knob), claim.usage)
        if share.taken_by is not None and share.lost > asked * _WORTH_TELLING:
            losers.setdefault(share.taken_by, []).append(path)
    for taker, paths in losers.items():
        above = {path.rpartition("/")[0] for path in paths}
        lowest = [path for path in paths if path not in above]
        total = sum(_share(honoured[path], knob).lost for path in lowest)
        yield Finding(
            f"protection/lost-{knob}",
            "warning",
            f"memory.{knob} claimed below {taker} is not honoured: {size(total)} in use are "
            "unprotected",
            taker,
            (
                because(lowest[0], knob, claims, honoured),
                *(
                    f"{facts.called(path)} claims {size(_bytes(claims[path], knob))}, "
                    f"loses {size(_share(honoured[path], knob).lost)}"
                    for path in lowest
                ),
            ),
            f"raise memory.{knob} of {taker} to the sum of what is claimed below it; a kubelet "
            "just restarted does so within minutes",
        )


def _receiving(facts: Facts, claims: Mapping[str, Claim]) -> Iterator[str]:
    """Pods, as their containers may well live by the pod's claim; elsewhere, the leaves."""
    above = {path.rpartition("/")[0] for path in claims}
    pods = tuple(path for path in claims if facts.is_pod(path))
    within = tuple(f"{pod}/" for pod in pods)
    yield from pods
    yield from (path for path in claims.keys() - above - set(pods) if not path.startswith(within))


def _unasked(facts: Facts, knob: Knob, shares: Mapping[str, Protection]) -> Iterator[Finding]:
    given = {path: _share(each, knob).unasked for path, each in shares.items()}
    given = {path: unasked for path, unasked in given.items() if unasked}
    if not given:
        return
    most = sorted(given, key=lambda path: (-given[path], path))
    yield Finding(
        f"protection/unasked-{knob}",
        _UNASKED[knob],
        f"memory_recursiveprot hands {size(sum(given.values()))} of memory.{knob} to pods or other "
        f"cgroups that never asked for it: {len(given)}",
        _above_all(most),
        tuple(f"{facts.called(path)}: {size(given[path])}" for path in most),
        f"give ancestors exactly the sum of memory.{knob} that is claimed below them",
    )


def _above_all(paths: list[str]) -> str:
    """The lowest cgroup that holds all of them."""
    shared = []
    for parts in zip(*(path.split("/")[1:-1] for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/" + "/".join(shared)


def _share(protection: Protection, knob: Knob) -> Share:
    return protection.min if knob == "min" else protection.low


def _bytes(claim: Claim, knob: Knob) -> int:
    value = claim.min if knob == "min" else claim.low
    return claim.usage if value == "max" else value


def _claim(content: str | None) -> Amount:
    text = (content or "").strip()
    if text == MAX:
        return "max"
    return int(text) if text.isdigit() else 0
