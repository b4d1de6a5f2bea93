"""Running pods: who a state file says holds memory, as a manager needs to know to let it be."""

from memqos.kube.pod import Pod
from memqos.numa.memory import MemoryBlocks, MemorySizes
from memqos.numa.requests import ContainerMemoryRequest, PodMemoryRequest, pod_memory_request
from memqos.numa.state import MemoryManagerState
from memqos.release import Release


def pods_in_state(
    state: MemoryManagerState, pods: tuple[Pod, ...] = (), release: Release | None = None
) -> dict[str, PodMemoryRequest]:
    """Every pod with memory of its own; one that is known is taken as it is.

    Of the others the state tells all that counts here: the names of those who hold memory, which
    they keep for as long as their pod runs.
    """
    known = {pod.metadata.uid: pod for pod in pods}
    running = {}
    for uid, containers in state.assignments.items():
        pod = known.get(uid)
        if pod is not None and release is not None:
            running[uid] = pod_memory_request(pod, release)
            continue
        pool = state.pools.get(uid)
        running[uid] = PodMemoryRequest(
            uid=uid,
            guaranteed=True,
            containers=tuple(
                [
                    ContainerMemoryRequest(name, "regular", _block_sizes(blocks))
                    for name, blocks in containers.items()
                ]
            ),
            total=_block_sizes(pool) if pool else None,
            pooled=bool(pool),
        )
    return running


def _block_sizes(blocks: MemoryBlocks) -> MemorySizes:
    return {block.type: block.size for block in blocks}
