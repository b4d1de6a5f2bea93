"""Running pods: who a state file says holds memory, as a manager needs to know to let it be."""

from memqos.kube.pod import Pod
from memqos.numa.memory import Blocks, Sizes
from memqos.numa.requests import PodWants, Wanted, wants_of
from memqos.numa.state import State
from memqos.release import Release


def running_in(
    state: State, pods: tuple[Pod, ...] = (), release: Release | None = None
) -> dict[str, PodWants]:
    """Every pod with memory of its own; one that is known is taken as it is.

    Of the others the state tells all that counts here: the names of those who hold memory, which
    they keep for as long as their pod runs.
    """
    known = {pod.metadata.uid: pod for pod in pods}
    running = {}
    for uid, containers in state.assignments.items():
        pod = known.get(uid)
        if pod is not None and release is not None:
            running[uid] = wants_of(pod, release)
            continue
        pool = state.pools.get(uid)
        running[uid] = PodWants(
            uid=uid,
            guaranteed=True,
            containers=tuple(
                [Wanted(name, "regular", _sizes(blocks)) for name, blocks in containers.items()]
            ),
            total=_sizes(pool) if pool else None,
            pooled=bool(pool),
        )
    return running


def _sizes(blocks: Blocks) -> Sizes:
    return {block.type: block.size for block in blocks}
