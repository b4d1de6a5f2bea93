"""Swap and resizes: what memqos says is what the kernel does."""

import signal

import pytest
from tests.builders import box, pod
from tests.eventually import eventually
from tests.vm.guest.support import MI, Cgroup

from memqos.cluster.limit_effect import limit_effect
from memqos.host.machine import read_machine
from memqos.kube.qos import qos_class
from memqos.kube.shape import shape_of
from memqos.lab.vm.topology import Topology
from memqos.plan.pod import plan_pod
from memqos.release import Release
from memqos.settings.settings import Settings

MACHINES = {"swapping": Topology(nodes=(512,), swap=256)}

LIMIT = 96 * MI


class TestSwap:
    def planned_swap(self, request: int, limit: int) -> int:
        machine, release = read_machine(), Release.of("1.37")
        settings = Settings(
            release,
            None,
            memory_capacity=machine.memory,
            swap_behavior="LimitedSwap",
            swap_capacity=machine.swap,
        )
        shape = shape_of(pod([box(request, limit)]), release)
        plan = plan_pod(shape, settings, qos_class(shape, release))
        planned = plan.containers[0].settings["memory.swap.max"].value
        assert isinstance(planned, int)
        return planned

    def test_a_container_swaps_up_to_its_share_and_is_killed_past_it(self, cgroup: Cgroup) -> None:
        share = self.planned_swap(64 * MI, LIMIT)
        assert 16 * MI < share < 64 * MI
        cgroup.write(memory_max=LIMIT, memory_swap_max=share)
        workload = cgroup.workload()
        workload.hold(LIMIT)
        assert workload.alive
        assert 0 < cgroup.number("memory.swap.current") <= share
        workload.ask(share + 16 * MI)
        eventually("the process is gone", lambda: not workload.alive)
        assert workload.killed_by == signal.SIGKILL
        assert cgroup.events()["oom_kill"] == 1

    def test_the_swap_disk_is_known(self) -> None:
        assert read_machine().swap_devices == ("/dev/vdc",)

    def test_a_container_that_opts_out_never_swaps(self, cgroup: Cgroup) -> None:
        assert self.planned_swap(LIMIT, LIMIT) == 0
        cgroup.write(memory_max=LIMIT, memory_swap_max=0)
        workload = cgroup.workload()
        workload.ask(LIMIT + 16 * MI)
        eventually("the process is gone", lambda: not workload.alive)
        assert cgroup.events()["oom_kill"] == 1
        assert cgroup.number("memory.swap.current") == 0


class TestResize:
    @pytest.mark.parametrize("limit", [128 * MI, 32 * MI])
    def test_a_lower_limit_kills_where_the_rule_says_so(self, cgroup: Cgroup, limit: int) -> None:
        cgroup.write(memory_max=192 * MI, memory_swap_max=0)
        workload = cgroup.workload()
        workload.hold(64 * MI)
        usage = cgroup.number("memory.current")
        effect = limit_effect(192 * MI, limit, usage, Release.of("1.32"), restarts=False)
        cgroup.write(memory_max=limit)
        if effect == "deadly":
            eventually("it is killed", lambda: not workload.alive)
            assert cgroup.events()["oom_kill"] == 1
        else:
            assert effect == "fits"
            workload.hold(MI)
            assert cgroup.events()["oom_kill"] == 0
        assert (effect == "deadly") == (limit == 32 * MI)
