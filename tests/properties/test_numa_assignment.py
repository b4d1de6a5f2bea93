"""Whatever containers are bound to, memqos's own allocation is sound, and stable when repeated."""

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import GI, Json, box, stanza
from tests.fakes.numa import MEMS, POOLS, Site, full

from memqos.numa.topology_manager import TOPOLOGY_POLICY_NAMES

NODES = 3
RESERVED = GI


def mems() -> st.SearchStrategy[str]:
    return st.sampled_from(["", "", "0", "1", "2", "0-1", "0-2", "1,2"])


@st.composite
def sites(draw: st.DrawFn) -> Site:
    site = Site(
        nodes=NODES,
        topologyManagerPolicy=draw(st.sampled_from(TOPOLOGY_POLICY_NAMES)),
        topologyManagerScope=draw(st.sampled_from(["container", "pod"])),
    )
    for number in range(draw(st.integers(1, 5))):
        sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=2))
        containers: list[Json] = [full(f"{size}Gi") for size in sizes]
        pooled = draw(st.integers(0, 3)) == 0
        if pooled:
            containers.append(box())
        whole = stanza(f"{sum(sizes) + 1}Gi", f"{sum(sizes) + 1}Gi", cpu=("4", "4"))
        bound = {f"c{index}": draw(mems()) for index in range(len(containers))}
        site.runs(f"p{number}", *containers, mems=bound, resources=whole if pooled else None)
    return site


@given(sites())
def test_no_node_is_promised_more_than_it_has(site: Site) -> None:
    plan = site.plan(gates=POOLS)
    promised = dict.fromkeys(range(NODES), 0)
    together = 0
    pools = {cgroup.pod for cgroup in plan.tree.cgroups.values() if cgroup.container == "c2"}
    for cgroup in plan.tree.cgroups.values():
        setting = cgroup.settings.get(MEMS)
        if setting is None or not setting.value or cgroup.pod in pools:
            continue
        (assignment,) = setting.inputs
        allocated = sum(size for _, size in assignment.amounts)
        together += allocated
        if len(assignment.nodes) == 1:
            promised[assignment.nodes[0]] += allocated
    assert all(allocated <= 10 * GI for allocated in promised.values())
    assert together <= NODES * 10 * GI - RESERVED


@given(sites())
def test_what_was_written_is_what_is_planned_the_next_time(site: Site) -> None:
    plan = site.plan(gates=POOLS)
    site.write(plan)
    again = site.plan(gates=POOLS)
    assert [change for change in again.comparison.changes if change.file == MEMS] == []
    refused, later = ({note.partition(":")[0] for note in each.notes} for each in (plan, again))
    assert later == refused
