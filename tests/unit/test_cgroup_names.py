"""Where a pod's cgroups are, and what a cgroup is."""

from itertools import product
from typing import get_args

import pytest

from memqos.errors import InputError
from memqos.kube.pod import QosClass
from memqos.plan.names import (
    CgroupPlace,
    Driver,
    RuntimeName,
    cgroup_names,
    inner,
    is_pod,
    kind_of,
    systemd_unit,
    within_container,
)

UID = "3f16ac77-9c7d-178d-d417-60a4553e4661"
ID = "2e231d83b05a9b05e8c2a51207e2bc6455f095966087aa88cba6b2a2be578c0f"
BURSTABLE_SLICE = "/kubepods.slice/kubepods-burstable.slice"
BURSTABLE_POD_SLICE = (
    BURSTABLE_SLICE + "/kubepods-burstable-pod3f16ac77_9c7d_178d_d417_60a4553e4661.slice"
)


@pytest.mark.parametrize(
    ("qos_class", "cgroupfs", "systemd"),
    [
        ("Guaranteed", "/kubepods/podu-1", "/kubepods.slice/kubepods-podu_1.slice"),
        (
            "Burstable",
            "/kubepods/burstable/podu-1",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice",
        ),
        (
            "BestEffort",
            "/kubepods/besteffort/podu-1",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice",
        ),
    ],
)
def test_a_pod_lives_in_its_class_and_guaranteed_pods_in_kubepods(
    qos_class: QosClass, cgroupfs: str, systemd: str
) -> None:
    assert cgroup_names("cgroupfs").pod("u-1", qos_class) == cgroupfs
    assert cgroup_names("systemd").pod("u-1", qos_class) == systemd


@pytest.mark.parametrize(
    ("root", "cgroupfs", "systemd"),
    [
        ("", "/kubepods", "/kubepods.slice"),
        ("/", "/kubepods", "/kubepods.slice"),
        ("/node", "/node/kubepods", "/node.slice/node-kubepods.slice"),
        ("/my-node", "/my-node/kubepods", "/my_node.slice/my_node-kubepods.slice"),
        ("/a/b", "/a/b/kubepods", "/a.slice/a-b.slice/a-b-kubepods.slice"),
        # The root is never read as a unit's name: systemd's suffix is added once more.
        ("/a.slice", "/a.slice/kubepods", "/a.slice.slice/a.slice-kubepods.slice"),
    ],
)
def test_the_cgroup_root_is_a_path_to_both_drivers(root: str, cgroupfs: str, systemd: str) -> None:
    assert cgroup_names("cgroupfs", root).kubepods == cgroupfs
    assert cgroup_names("systemd", root).kubepods == systemd


def test_classes_below_a_root_of_systemd_spell_out_all_of_their_ancestors() -> None:
    names = cgroup_names("systemd", "/my-node")
    assert names.besteffort == f"{names.kubepods}/my_node-kubepods-besteffort.slice"
    assert names.pod("1", "BestEffort") == (
        f"{names.besteffort}/my_node-kubepods-besteffort-pod1.slice"
    )


@pytest.mark.parametrize(
    "uid",
    ["", "/", "a/b", "..", "../../system.slice", "a\0", "a\n", "a b", "a_b", "a.b", "ä", "\ud800"],
)
@pytest.mark.parametrize("driver", get_args(Driver))
def test_a_uid_that_could_lead_elsewhere_never_becomes_a_path(driver: Driver, uid: str) -> None:
    with pytest.raises(InputError) as refused:
        cgroup_names(driver).pod(uid, "Burstable")
    assert refused.value.hint


@pytest.mark.parametrize("driver", get_args(Driver))
def test_a_uid_longer_than_a_file_name_is_refused(driver: Driver) -> None:
    names = cgroup_names(driver)
    assert names.pod("a" * 200, "Guaranteed")
    with pytest.raises(InputError, match="longer than 255 bytes"):
        names.pod("a" * 253, "Guaranteed")


@pytest.mark.parametrize("container_id", ["", "..", "a/b", "containerd://a", "conmon-a", "a\n"])
@pytest.mark.parametrize("runtime", get_args(RuntimeName))
def test_a_container_id_that_could_lead_elsewhere_never_becomes_a_path(
    runtime: RuntimeName, container_id: str
) -> None:
    with pytest.raises(InputError) as refused:
        cgroup_names("systemd").container(BURSTABLE_POD_SLICE, container_id, runtime)
    assert refused.value.hint


@pytest.mark.parametrize("root", ["/..", "/a/../b", "/./a", "/a\n", "/a\0b"])
@pytest.mark.parametrize("driver", get_args(Driver))
def test_a_cgroup_root_that_is_no_plain_path_is_refused(driver: Driver, root: str) -> None:
    with pytest.raises(InputError) as refused:
        cgroup_names(driver, root)
    assert refused.value.field == "cgroupRoot"


@pytest.mark.parametrize(
    ("driver", "runtime", "name"),
    [
        ("cgroupfs", "containerd", ID),
        ("cgroupfs", "cri-o", f"crio-{ID}"),
        ("systemd", "containerd", f"cri-containerd-{ID}.scope"),
        ("systemd", "cri-o", f"crio-{ID}.scope"),
    ],
)
def test_each_runtime_names_its_containers_in_its_own_way(
    driver: Driver, runtime: RuntimeName, name: str
) -> None:
    names = cgroup_names(driver)
    pod = names.pod(UID, "Burstable")
    assert names.container(pod, ID, runtime) == f"{pod}/{name}"


def test_crun_keeps_a_cgroup_within_the_scope() -> None:
    assert inner("/a/crio-1.scope") == "/a/crio-1.scope/container"


@pytest.mark.parametrize(
    ("driver", "name", "path"),
    [
        ("cgroupfs", "/podruntime", "/podruntime"),
        ("cgroupfs", "/system.slice", "/system.slice"),
        ("cgroupfs", "reserved/kube", "/reserved/kube"),
        ("systemd", "/podruntime.slice", "/podruntime.slice"),
        ("systemd", "/podruntime", "/podruntime.slice"),
        ("systemd", "/system.slice", "/system.slice"),
        ("systemd", "/kube-node.slice", "/kube.slice/kube-node.slice"),
        ("systemd", "/elsewhere/kube_node.slice", "/kube_node.slice"),
    ],
)
def test_a_reserved_cgroup_is_absolute_whatever_the_cgroup_root(
    driver: Driver, name: str, path: str
) -> None:
    assert cgroup_names(driver, "/my-node").reserved_cgroup(name) == path


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        *product(get_args(Driver), ["", "/", "/..", "/a/../b", "/a\n"]),
        *product(["systemd"], ["/.slice", "/-.slice", "/a--b.slice", "/-a.slice", "/a-.slice"]),
    ],
)
def test_a_reserved_name_that_names_no_cgroup_is_refused(driver: Driver, name: str) -> None:
    with pytest.raises(InputError) as refused:
        cgroup_names(driver).reserved_cgroup(name)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("driver", "root", "qos_class", "runtime"),
    list(
        product(
            get_args(Driver), ["/", "/my-node", "/a/b_c"], get_args(QosClass), get_args(RuntimeName)
        )
    ),
)
def test_every_name_is_recognised_again(
    driver: Driver, root: str, qos_class: QosClass, runtime: RuntimeName
) -> None:
    names = cgroup_names(driver, root)
    pod = names.pod(UID, qos_class)
    container = names.container(pod, ID, runtime)
    assert names.recognise(names.kubepods) == CgroupPlace("kubepods")
    assert names.recognise(names.burstable) == CgroupPlace("qos", "Burstable")
    assert names.recognise(names.besteffort) == CgroupPlace("qos", "BestEffort")
    assert names.recognise(pod) == CgroupPlace("pod", qos_class, UID)
    assert names.recognise(container) == CgroupPlace("container", qos_class, UID, ID, runtime)
    above = [path for path in ("/", *names.levels) if is_pod(path)]
    assert (is_pod(pod), is_pod(container), above) == (True, False, [])
    within = [f"{container}/{name}" for name in within_container(container)]
    assert within == ([inner(container)] if driver == "systemd" else [])
    assert within_container(inner(container)) == ()
    kinds = [kind_of(path) for path in (*names.levels, pod, container, *within)]
    assert kinds == ["kubepods", "qos", "qos", "pod", *["container"] * (1 + len(within))]


@pytest.mark.parametrize(
    "path",
    [
        "/system.slice/sshd.service",
        "/kubepods.slice.d",
        "/notkubepods",
        "/kubepods/guaranteed",
        "/kubepods/burstable/podu-1/conmon-1.scope",
        "/kubepods/burstable/podu-1/abc/init.scope",
        "/user.slice/cri-containerd-abc.scope",
        "/kubepods.slice/kubepods-burstable.slice/sshd.service",
    ],
)
def test_a_name_that_no_kubelet_makes_is_of_no_kind(path: str) -> None:
    assert kind_of(path) is None


def test_the_cgroups_of_a_running_systemd_node_are_recognised() -> None:
    names = cgroup_names("systemd")
    scope = f"{BURSTABLE_POD_SLICE}/cri-containerd-{ID}.scope"
    assert names.recognise(BURSTABLE_POD_SLICE) == CgroupPlace("pod", "Burstable", UID)
    assert names.recognise(scope) == CgroupPlace("container", "Burstable", UID, ID, "containerd")
    assert names.recognise(
        "/kubepods.slice/kubepods-pod7b6aae9d_bda2_e117_130e_c2e6f49582b4.slice"
    ) == CgroupPlace("pod", "Guaranteed", "7b6aae9d-bda2-e117-130e-c2e6f49582b4")


def test_the_inner_cgroup_of_crun_belongs_to_its_container() -> None:
    scope = f"{BURSTABLE_POD_SLICE}/crio-{ID}.scope"
    place = cgroup_names("systemd").recognise(inner(scope))
    assert place == CgroupPlace("inner", "Burstable", UID, ID, "cri-o")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/init.scope",
        "/system.slice/dbus.service",
        "/kubepods",
        "/kubepods.slicer",
        "/kubepods.slice/",
        "/kubepods.slice/kubepods-pod.slice",
        "/kubepods.slice/kubepods-pod_a",
        "/kubepods.slice/kubepods-poda-b.slice",
        "/kubepods.slice/kubepods-burstable-poda.slice",
        f"{BURSTABLE_SLICE}/kubepods-poda.slice",
        f"{BURSTABLE_SLICE}/poda",
        f"{BURSTABLE_POD_SLICE}/",
        f"{BURSTABLE_POD_SLICE}/{ID}",
        f"{BURSTABLE_POD_SLICE}/crio-{ID}",
        f"{BURSTABLE_POD_SLICE}/crio-conmon-{ID}.scope",
        f"{BURSTABLE_POD_SLICE}/crio-{ID}.scope/container/app",
        f"{BURSTABLE_POD_SLICE}/crio-{ID}.scope/system.slice",
        f"/user.slice{BURSTABLE_POD_SLICE}",
    ],
)
def test_what_is_not_kubernetes_layout_is_not_recognised_by_systemd_names(path: str) -> None:
    assert cgroup_names("systemd").recognise(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "/kubepods.slice",
        "/init",
        "/kubepods/pod",
        "/kubepods/poda_b",
        "/kubepods/system",
        "/kubepods/guaranteed",
        f"/kubepods/poda/crio-conmon-{ID}",
        f"/kubepods/poda/{ID}/container",
        f"/kubepods/poda/{ID}/kubepods/podb",
        f"/kubepods/poda/{ID}.scope",
        "/kubepods/poda//",
    ],
)
def test_what_is_not_kubernetes_layout_is_not_recognised_by_cgroupfs_names(path: str) -> None:
    assert cgroup_names("cgroupfs").recognise(path) is None


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/kubepods.slice", "kubepods.slice"),
        (BURSTABLE_SLICE, "kubepods-burstable.slice"),
        (BURSTABLE_POD_SLICE, BURSTABLE_POD_SLICE.rpartition("/")[2]),
        (f"{BURSTABLE_POD_SLICE}/crio-{ID}.scope", f"crio-{ID}.scope"),
        ("/system.slice/kubelet.service", "kubelet.service"),
        ("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"),
        ("/init.scope", "init.scope"),
        ("/", None),
        ("/kubepods", None),
        ("/kubepods/burstable/pod1/a.slice", None),
        ("/kubepods-burstable.slice", None),
        ("/kubepods.slice/other-burstable.slice", None),
        ("/user.slice/user-1000.slice/user@1000.service/kubepods.slice", None),
        (f"{BURSTABLE_POD_SLICE}/crio-{ID}.scope/sshd.service", None),
        (f"{BURSTABLE_POD_SLICE}/crio-{ID}.scope/container", None),
        ("/a--b.slice", None),
        ("/.slice", None),
        ("/a b.slice", None),
        (f"/{'a' * 300}.slice", None),
    ],
)
def test_a_systemd_unit_is_recognised_by_its_path(path: str, unit: str | None) -> None:
    assert systemd_unit(path) == unit
