"""Steps in the order that is safe, with those of one owner together.

Parents are raised before their children, and children lowered before their parents. Where an
owner's values go both ways they are written in one call all the same, if nothing below is moved in
the same way; else it takes two, one for what is raised and one for what is lowered.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from memqos.converge.steps import WriteStep
from memqos.plan.changes import Change

Batch = list[WriteStep]
_Files = dict[str, set[str]]


def batch_steps(steps: Iterable[WriteStep], batch_key: Callable[[Change], str]) -> list[Batch]:
    """What is written in one call each, in order; `name` tells whose a change is."""
    together: defaultdict[str, Batch] = defaultdict(list)
    for step in steps:
        together[batch_key(step.change)].append(step)
    raised_below, lowered_below = _below(together.values())
    raising: list[Batch] = []
    lowering: list[Batch] = []
    for batch in together.values():
        path = batch[0].change.path
        up = [step for step in batch if step.change.raises]
        down = [step for step in batch if not step.change.raises]
        if not up or not down or not _files(up) & raised_below[path]:
            (lowering if down else raising).append(batch)
        elif not _files(down) & lowered_below[path]:
            raising.append(batch)
        else:
            raising.append(up)
            lowering.append(down)
    return sorted(raising, key=_depth) + sorted(lowering, key=_depth, reverse=True)


def _below(together: Iterable[Batch]) -> tuple[_Files, _Files]:
    """Path → the files that are raised below it, and those that are lowered."""
    raised: defaultdict[str, set[str]] = defaultdict(set)
    lowered: defaultdict[str, set[str]] = defaultdict(set)
    for batch in together:
        for step in batch:
            files = raised if step.change.raises else lowered
            for ancestor in _ancestors(step.change.path):
                files[ancestor].add(step.change.file)
    return raised, lowered


def _ancestors(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _files(steps: Iterable[WriteStep]) -> set[str]:
    return {step.change.file for step in steps}


def _depth(batch: Batch) -> int:
    return batch[0].change.path.count("/")
