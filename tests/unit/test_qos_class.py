"""The QoS class of a pod, and what made it."""

import pytest
from tests.builders import Json, box, pod, stanza

from memqos.kube.defaulting import apply_defaults
from memqos.kube.explanations import why_class
from memqos.kube.pod import Pod, QosClass
from memqos.kube.qos import CLASSES, compute_qos_class, qos_class
from memqos.kube.shape import containers_of, shape_of
from memqos.release import Release

FIXED = Release.of("1.38")
UNFIXED = Release.of("1.38", {"PodLevelResourcesFixKubeletQOSClass": False})
RELEASES = [Release.of(f"1.{minor}") for minor in range(22, 39)]

FULL = box("1Gi", "1Gi", cpu=("1", "1"))
NOTHING = box()


def class_of(pod: Pod, release: Release = FIXED) -> QosClass:
    return qos_class(apply_defaults(pod, release), release)


class TestContainers:
    @pytest.mark.parametrize("release", RELEASES, ids=str)
    @pytest.mark.parametrize(
        ("containers", "qos"),
        [
            ([FULL], "Guaranteed"),
            ([box(None, "1Gi", cpu=(None, "1"))], "Guaranteed"),
            ([box("1Gi", "1024Mi", cpu=("1", "1000m"))], "Guaranteed"),
            ([FULL, FULL], "Guaranteed"),
            ([FULL, NOTHING], "Burstable"),
            ([FULL, box("1Gi", "1Gi")], "Burstable"),
            ([box("1Gi", "1Gi")], "Burstable"),
            ([box(cpu=("1", "1"))], "Burstable"),
            ([box("1Gi", "2Gi", cpu=("1", "1"))], "Burstable"),
            ([box("1Gi", "1Gi", cpu=("1", None))], "Burstable"),
            ([box("1")], "Burstable"),
            ([box("0", "1Gi", cpu=("1", "1"))], "Burstable"),
            ([NOTHING], "BestEffort"),
            ([NOTHING, NOTHING], "BestEffort"),
            ([box("0", "0", cpu=("0", "0"))], "BestEffort"),
            ([box(limits={"example.com/gpu": "1"})], "BestEffort"),
            ([box(requests={"ephemeral-storage": "1Gi"})], "BestEffort"),
        ],
    )
    def test_request_and_limit_decide(
        self, containers: list[Json], qos: QosClass, release: Release
    ) -> None:
        assert class_of(pod(containers), release) == qos

    @pytest.mark.parametrize("release", RELEASES, ids=str)
    @pytest.mark.parametrize("sidecar", [False, True])
    def test_init_containers_and_sidecars_count(self, sidecar: bool, release: Release) -> None:
        kind = {"restartPolicy": "Always"} if sidecar else {}
        assert class_of(pod([FULL], init=[FULL | kind]), release) == "Guaranteed"
        assert class_of(pod([FULL], init=[NOTHING | kind]), release) == "Burstable"
        assert class_of(pod([NOTHING], init=[box("1Gi") | kind]), release) == "Burstable"
        assert class_of(pod([NOTHING], init=[NOTHING | kind]), release) == "BestEffort"

    def test_ephemeral_containers_and_overhead_do_not(self) -> None:
        assert class_of(pod([FULL], ephemeral=[NOTHING])) == "Guaranteed"
        assert class_of(pod([NOTHING], ephemeral=[FULL])) == "BestEffort"
        assert class_of(pod([NOTHING], overhead={"memory": "1Gi", "cpu": "1"})) == "BestEffort"

    def test_a_pod_without_containers_requests_nothing(self) -> None:
        assert class_of(pod([])) == "BestEffort"


class TestPodLevel:
    @pytest.mark.parametrize("release", RELEASES[12:], ids=str)
    @pytest.mark.parametrize(
        ("container", "resources", "qos"),
        [
            (NOTHING, stanza("1Gi", "1Gi", cpu=("1", "1")), "Guaranteed"),
            (NOTHING, stanza(None, "1Gi", cpu=(None, "1")), "Guaranteed"),
            (box("1Mi", "2Mi"), stanza("1Gi", "1Gi", cpu=("1", "1")), "Guaranteed"),
            (FULL, stanza("2Gi", "4Gi", cpu=("1", "1")), "Burstable"),
            (NOTHING, stanza("1Gi"), "Burstable"),
            (NOTHING, stanza("0", "0", cpu=("0", "0")), "BestEffort"),
        ],
    )
    def test_it_alone_decides(
        self, container: Json, resources: Json, qos: QosClass, release: Release
    ) -> None:
        assert class_of(pod([container], resources=resources), release) == qos

    def test_a_cpu_limit_completed_from_the_containers_counts_as_written(self) -> None:
        written = pod([FULL], resources=stanza("2Gi", "2Gi"))
        assert class_of(written, Release.of("1.36")) == "Burstable"
        assert class_of(written, Release.of("1.37")) == "Guaranteed"

    def test_hugepages_alone_make_a_stored_pod_best_effort(self) -> None:
        huge = {"hugepages-2Mi": "4Mi"}
        stored = shape_of(pod([FULL], resources=stanza(requests=huge, limits=huge)), FIXED)
        assert compute_qos_class(stored, FIXED) == "BestEffort"

    @pytest.mark.parametrize("resources", [{}, {"requests": {}, "limits": {}}])
    def test_an_empty_stanza_counts_as_none_since_the_fix(self, resources: Json) -> None:
        written = pod([FULL], resources=resources)
        assert class_of(written, FIXED) == "Guaranteed"
        assert class_of(written, UNFIXED) == "BestEffort"
        assert class_of(written, Release.of("1.37")) == "Guaranteed"
        for release in ("1.34", "1.35", "1.36"):
            assert class_of(written, Release.of(release)) == "BestEffort"

    def test_so_does_a_stanza_with_nothing_a_pod_may_set(self) -> None:
        stored = shape_of(pod([FULL], resources=stanza(limits={"example.com/gpu": "1"})), FIXED)
        assert compute_qos_class(stored, FIXED) == "Guaranteed"
        assert compute_qos_class(stored, UNFIXED) == "BestEffort"

    def test_without_the_gate_the_containers_decide(self) -> None:
        off = Release.of("1.38", {"PodLevelResources": False})
        assert class_of(pod([FULL], resources=stanza("2Gi")), off) == "Guaranteed"
        assert class_of(pod([FULL], resources={}), off) == "Guaranteed"
        assert class_of(pod([FULL], resources=stanza("2Gi")), Release.of("1.31")) == "Guaranteed"


class TestStored:
    @pytest.mark.parametrize("stored", CLASSES)
    def test_a_class_never_changes_once_it_is_given(self, stored: str) -> None:
        for containers in ([FULL], [box("1Gi")], [NOTHING]):
            assert class_of(pod(containers, qos_class=stored)) == stored

    @pytest.mark.parametrize("stored", ["", "Gold"])
    def test_what_is_no_class_is_not_one_that_was_given(self, stored: str) -> None:
        assert class_of(pod([FULL], qos_class=stored)) == "Guaranteed"


class TestWhy:
    def reason(self, pod: Pod, release: Release = FIXED) -> str:
        names = [container.name for container in containers_of(pod)]
        return why_class(apply_defaults(pod, release), names, release)

    @pytest.mark.parametrize(
        ("written", "reason"),
        [
            (pod([FULL]), "request = limit for both cpu and memory in every container"),
            (pod([NOTHING]), "no container requests or limits cpu or memory"),
            (
                pod([FULL, box("1Gi", "2Gi", cpu=("1", "1"))]),
                "container c1: memory request 1Gi ≠ limit 2Gi",
            ),
            (pod([box(cpu=("500m", None))]), "container c0: cpu request 500m ≠ limit unset"),
            (pod([FULL], init=[box("1Gi")]), "container i0: memory request 1Gi ≠ limit unset"),
            (pod([box("1Gi", "1Gi")]), "container c0: memory is requested but cpu is not"),
            (pod([box(cpu=("1", "1"))]), "container c0: cpu is requested but memory is not"),
            (pod([FULL, NOTHING]), "some containers request cpu or memory and others do not"),
            (
                pod([FULL], resources=stanza("1Gi", "1Gi", cpu=("1", "1"))),
                "at pod level, request = limit for both cpu and memory",
            ),
            (
                pod([FULL], resources=stanza("1Gi", "2Gi")),
                "at pod level, request = limit is not true for both cpu and memory",
            ),
            (
                pod([NOTHING], resources=stanza("0")),
                "the pod level sets neither cpu nor memory, and only the pod level counts",
            ),
            (
                pod([FULL], resources={}),
                "request = limit for both cpu and memory in every container",
            ),
            (
                pod([FULL], qos_class="Burstable"),
                "set at creation and unchanged, though requests and limits would now give "
                "Guaranteed",
            ),
            (
                pod([FULL], qos_class="Guaranteed"),
                "request = limit for both cpu and memory in every container",
            ),
        ],
    )
    def test_it_names_what_decided(self, written: Pod, reason: str) -> None:
        assert self.reason(written) == reason

    def test_it_names_the_quirk_of_an_empty_stanza(self) -> None:
        assert self.reason(pod([FULL], resources={}), UNFIXED) == (
            "an empty pod-level stanza counts as no requests in this release"
        )

    def test_a_class_that_is_none_was_not_kept(self) -> None:
        assert self.reason(pod([FULL], qos_class="")) == self.reason(pod([FULL]))
