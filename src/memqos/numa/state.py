"""The Memory Manager's state: the node map and who holds which blocks of it."""

from collections.abc import Mapping

import msgspec

from memqos.numa.memory import MemoryBlocks, NumaNodeMap, NumaNodeState, release_blocks


class MemoryManagerState(msgspec.Struct, frozen=True):
    """What the kubelet keeps in its state file.

    `assignments` holds the blocks of containers by pod, `pools` those of pods which got memory as a
    whole; the containers of such a pod share its pool.
    """

    policy: str
    nodes: NumaNodeMap = {}
    assignments: Mapping[str, Mapping[str, MemoryBlocks]] = {}
    pools: Mapping[str, MemoryBlocks] = {}

    def blocks(self, uid: str, container: str) -> MemoryBlocks | None:
        """The blocks of a container; None if it has no entry, which may be an empty one."""
        return self.assignments.get(uid, {}).get(container)

    def container_nodes(self, uid: str, container: str) -> tuple[int, ...]:
        """The nodes of which a container holds memory, ascending."""
        blocks = self.blocks(uid, container) or ()
        return tuple(sorted({node for block in blocks for node in block.nodes}))

    def with_nodes(self, nodes: Mapping[int, NumaNodeState]) -> "MemoryManagerState":
        return msgspec.structs.replace(self, nodes=nodes)

    def with_blocks(self, uid: str, container: str, blocks: MemoryBlocks) -> "MemoryManagerState":
        of_pod = {**self.assignments.get(uid, {}), container: blocks}
        return msgspec.structs.replace(self, assignments={**self.assignments, uid: of_pod})

    def with_pool(self, uid: str, blocks: MemoryBlocks) -> "MemoryManagerState":
        return msgspec.structs.replace(self, pools={**self.pools, uid: blocks})

    def without_container(self, uid: str, container: str) -> "MemoryManagerState":
        """The state once a container is gone and its memory free.

        A pool is given back with the pod's last container.
        """
        own = self.blocks(uid, container)
        left = self._without_entry(uid, container)
        pool = self.pools.get(uid)
        if pool is None:
            return left if own is None else left.with_nodes(release_blocks(left.nodes, own))
        if uid in left.assignments:
            return left
        pools = {other: blocks for other, blocks in left.pools.items() if other != uid}
        return msgspec.structs.replace(left, nodes=release_blocks(left.nodes, pool), pools=pools)

    def _without_entry(self, uid: str, container: str) -> "MemoryManagerState":
        if self.blocks(uid, container) is None:
            return self
        of_pod = {
            name: blocks for name, blocks in self.assignments[uid].items() if name != container
        }
        assignments = {**self.assignments, uid: of_pod}
        if not of_pod:
            del assignments[uid]
        return msgspec.structs.replace(self, assignments=assignments)
