"""All experiments by name, in the order in which they are listed."""

from typing import Final

from memqos.lab.scenario import Scenario
from memqos.lab.scenarios.bursty import BURSTY
from memqos.lab.scenarios.eviction_order import EVICTION_ORDER
from memqos.lab.scenarios.hard_reservation import HARD_RESERVATION
from memqos.lab.scenarios.numa import NUMA
from memqos.lab.scenarios.oom_order import OOM_ORDER
from memqos.lab.scenarios.page_cache import PAGE_CACHE
from memqos.lab.scenarios.protection import PROTECTION
from memqos.lab.scenarios.stability import STABILITY
from memqos.lab.scenarios.throttling import THROTTLING

SCENARIOS: Final[dict[str, Scenario]] = {
    each.name: each
    for each in (
        THROTTLING,
        PROTECTION,
        STABILITY,
        BURSTY,
        PAGE_CACHE,
        HARD_RESERVATION,
        NUMA,
        OOM_ORDER,
        EVICTION_ORDER,
    )
}
