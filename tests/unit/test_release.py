"""Kubernetes releases: how one is named, which gates it has, and what a table over them answers."""

from itertools import pairwise

import pytest

from memqos.errors import UnsupportedRelease
from memqos.release import (
    DEFAULT_MINOR,
    NEWEST,
    OLDEST,
    Release,
    Since,
    default,
    dependencies,
    gate_state,
    stage,
)
from memqos.release._gate_dependencies import DEPENDENCIES
from memqos.release._gate_facts import ALIASES, HISTORY

MINORS = range(OLDEST, NEWEST + 1)

# Kubernetes withdrew these from beta back to alpha.
BACK_TO_ALPHA = {
    "APIServingWithRoutine",
    "EventedPLEG",
    "LocalStorageCapacityIsolationFSQuotaMonitoring",
}


class TestSince:
    def test_the_newest_entry_not_after_the_release_wins(self) -> None:
        rule = Since({22: "a", 27: "b", 36: "c"})
        assert [rule.at(minor) for minor in (22, 26, 27, 35, 36, 38)] == list("aabbcc")

    def test_entries_may_be_given_in_any_order(self) -> None:
        rule = Since({30: "new", 22: "old"})
        assert (rule.at(29), rule.at(30)) == ("old", "new")
        assert rule.entries() == ((22, "old"), (30, "new"))

    def test_a_value_of_none_is_a_value(self) -> None:
        rule = Since({22: 1, 25: None})
        assert (rule.at(24), rule.at(25), rule.at(26)) == (1, None, None)

    def test_a_release_before_the_first_entry_has_no_answer(self) -> None:
        with pytest.raises(UnsupportedRelease, match=r"1\.26.*the oldest entry is for 1\.27"):
            Since({27: "first"}).at(26)


class TestNamingARelease:
    @pytest.mark.parametrize(
        "version",
        ["1.36", "v1.36", "1.36.4", "v1.36.4", "v1.36.0-alpha.0", "v1.36.4+k3s1", 36],
    )
    def test_any_usual_spelling_names_it(self, version: str | int) -> None:
        assert Release.of(version) == Release.of("1.36")

    def test_it_prints_as_its_version(self) -> None:
        assert str(Release.of("v1.36.4")) == "1.36"

    def test_its_repr_makes_it_again(self) -> None:
        release = Release.of("1.36", {"MemoryQoS": True})
        assert repr(release) == "Release.of('1.36', {'MemoryQoS': True})"

    def test_unnamed_is_the_default(self) -> None:
        assert Release.of().minor == DEFAULT_MINOR == 36

    @pytest.mark.parametrize("minor", MINORS)
    def test_every_release_from_the_oldest_to_the_newest_is_known(self, minor: int) -> None:
        assert Release.of(f"1.{minor}").minor == minor

    @pytest.mark.parametrize("version", ["1.21", "1.21.14", "0.36", 21, 1, 0, -1])
    def test_an_older_one_is_refused_with_the_oldest_known(self, version: str | int) -> None:
        with pytest.raises(UnsupportedRelease, match=r"older .* the oldest is 1\.22"):
            Release.of(version)

    @pytest.mark.parametrize("version", ["1.39", "v1.39.0-alpha.1", "2.0", 39, 136])
    def test_a_newer_one_is_refused_with_the_newest_known(self, version: str | int) -> None:
        with pytest.raises(UnsupportedRelease, match=r"newer .* the newest is 1\.38: .*upgrade"):
            Release.of(version)

    @pytest.mark.parametrize(
        "version",
        [
            "",
            "1",
            "1.",
            "36",
            "1.x",
            "latest",
            " 1.36",
            "1.36\n",
            "1.36.",
            "1.36.4.5",
            "1.36+",
            "1.३६",
            "1." + "9" * 5000,
        ],
    )
    def test_anything_else_is_not_a_version(self, version: str) -> None:
        with pytest.raises(UnsupportedRelease, match="not a Kubernetes version"):
            Release.of(version)


class TestSettingGates:
    def test_an_unknown_gate_is_refused_with_the_nearest_name(self) -> None:
        with pytest.raises(UnsupportedRelease, match=r"'memoryQos'.*did you mean MemoryQoS\?"):
            Release.of("1.36", {"memoryQos": True})

    def test_a_gate_like_no_other_is_refused_too(self) -> None:
        with pytest.raises(UnsupportedRelease, match=r"'zzz'.*check the spelling"):
            Release.of("1.36", {"zzz": False})

    def test_a_gate_from_the_future_is_refused_with_its_first_release(self) -> None:
        with pytest.raises(UnsupportedRelease, match=r"1\.31 has no .* it exists since 1\.32"):
            Release.of("1.31", {"PodLevelResources": True})

    def test_a_gate_of_the_past_is_refused_with_its_last_release(self) -> None:
        Release.of("1.25", {"DynamicKubeletConfig": True})
        with pytest.raises(UnsupportedRelease, match=r"1\.26 has no .* it existed until 1\.25"):
            Release.of("1.26", {"DynamicKubeletConfig": True})

    def test_a_locked_gate_keeps_its_lock(self) -> None:
        Release.of("1.34", {"InPlacePodVerticalScaling": False})
        Release.of("1.35", {"InPlacePodVerticalScaling": True})
        with pytest.raises(UnsupportedRelease, match=r"locked on in Kubernetes 1\.35"):
            Release.of("1.35", {"InPlacePodVerticalScaling": False})

    @pytest.mark.parametrize("on", [True, False])
    def test_an_alias_sets_the_gate_it_stands_for(self, on: bool) -> None:
        by_alias = Release.of("1.38", {"PodLevelResourcesFixUpdateDefaulting": on})
        assert by_alias == Release.of("1.38", {"PodLevelResourcesFixDefaulting": on})
        assert by_alias.is_enabled("PodLevelResourcesFixUpdateDefaulting") is on
        assert by_alias.is_enabled("PodLevelResourcesFixDefaulting") is on

    def test_gates_can_be_set_on_top_of_others(self) -> None:
        release = Release.of("1.36", {"MemoryQoS": False, "PodLevelResources": False})
        assert release.with_gates({"MemoryQoS": True}) == Release.of(
            "1.36", {"MemoryQoS": True, "PodLevelResources": False}
        )

    def test_releases_are_equal_whatever_the_order_of_their_gates(self) -> None:
        one = Release.of("1.36", {"MemoryQoS": True, "NodeSwap": True})
        other = Release.of("1.36", {"NodeSwap": True, "MemoryQoS": True})
        assert one == other
        assert len({one, other, Release.of("1.36"), Release.of("1.35")}) == 3


class TestEnabled:
    def test_a_gate_that_is_not_set_is_at_its_default(self) -> None:
        assert not Release.of("1.36").is_enabled("MemoryQoS")
        assert Release.of("1.37").is_enabled("MemoryQoS")

    def test_a_gate_somebody_sets_is_as_set(self) -> None:
        assert Release.of("1.22", {"MemoryQoS": True}).is_enabled("MemoryQoS")
        assert not Release.of("1.38", {"MemoryQoS": False}).is_enabled("MemoryQoS")

    def test_a_gate_that_does_not_exist_yet_is_off(self) -> None:
        assert not Release.of("1.36").is_enabled("PodLevelResourcesFixDefaulting")
        assert not Release.of("1.36").is_enabled("PodLevelResourcesFixKubeletQOSClass")

    def test_a_gate_removed_after_graduation_stays_on(self) -> None:
        assert stage("MemoryManager", 32) == "GA"
        assert stage("MemoryManager", 38) == "gone"
        assert Release.of("1.38").is_enabled("MemoryManager")

    def test_a_gate_removed_without_graduation_stays_as_it_last_was(self) -> None:
        assert not Release.of("1.38").is_enabled("DynamicKubeletConfig")
        assert Release.of("1.38").is_enabled("ValidateProxyRedirects")

    def test_a_gate_falls_with_the_gate_it_depends_on(self) -> None:
        release = Release.of("1.38", {"PodLevelResources": False})
        for name in (
            "PodLevelResources",
            "PodLevelResourcesFixDefaulting",
            "PodLevelResourcesFixKubeletQOSClass",
            "InPlacePodLevelResourcesVerticalScaling",
        ):
            assert Release.of("1.38").is_enabled(name)
            assert not release.is_enabled(name)

    def test_a_gate_falls_even_if_it_was_set_itself(self) -> None:
        release = Release.of("1.38", {"PodLevelResources": False, "PodLevelResourceManagers": True})
        assert not release.is_enabled("PodLevelResourceManagers")

    def test_a_gate_falls_with_what_its_dependency_depends_on(self) -> None:
        assert dependencies("WorkloadAwarePreemption", 36) == ("GangScheduling",)
        assert dependencies("GangScheduling", 36) == ("GenericWorkload",)
        gates = {"WorkloadAwarePreemption": True, "GangScheduling": True}
        assert not Release.of("1.36", gates).is_enabled("WorkloadAwarePreemption")
        gates["GenericWorkload"] = True
        assert Release.of("1.36", gates).is_enabled("WorkloadAwarePreemption")

    def test_all_alpha_sets_the_alpha_gates_not_set_by_name(self) -> None:
        release = Release.of("1.36", {"AllAlpha": True, "PodLevelResourceManagers": False})
        assert release.is_enabled("MemoryQoS")
        assert not release.is_enabled("PodLevelResourceManagers")

    def test_all_beta_sets_the_beta_gates_not_set_by_name(self) -> None:
        release = Release.of("1.38", {"AllBeta": False, "MemoryQoS": True})
        assert release.is_enabled("MemoryQoS")
        assert not release.is_enabled("PodLevelResources")
        assert release.is_enabled("InPlacePodVerticalScaling")

    def test_asking_for_an_unknown_gate_is_an_error(self) -> None:
        with pytest.raises(UnsupportedRelease, match="did you mean MemoryQoS"):
            Release.of("1.36").is_enabled("MemoryQos")


class TestExplaining:
    def test_the_memory_gates_over_time(self) -> None:
        assert (stage("MemoryQoS", 36), default("MemoryQoS", 36)) == ("alpha", False)
        assert (stage("MemoryQoS", 37), default("MemoryQoS", 37)) == ("beta", True)
        assert (stage("PodLevelResources", 31), default("PodLevelResources", 31)) == (None, False)
        assert (stage("PodLevelResources", 32), default("PodLevelResources", 32)) == (
            "alpha",
            False,
        )
        assert (stage("PodLevelResources", 34), default("PodLevelResources", 34)) == ("beta", True)
        assert stage("PodLevelResourcesFixDefaulting", 36) is None
        assert stage("PodLevelResourcesFixDefaulting", 37) == "beta"

    def test_an_alias_has_the_stage_of_the_gate_it_stands_for(self) -> None:
        assert stage("PodLevelResourcesFixUpdateDefaulting", 37) == "beta"


class TestFacts:
    @pytest.mark.parametrize("minor", MINORS)
    def test_every_gate_has_an_answer_in_every_release(self, minor: int) -> None:
        release = Release.of(minor)
        for name in HISTORY:
            assert release.is_enabled(name) is default(name, minor), name

    @pytest.mark.parametrize("minor", MINORS)
    def test_setting_a_gate_to_its_default_changes_nothing(self, minor: int) -> None:
        exists = {name for name in HISTORY if stage(name, minor) not in (None, "gone")}
        defaults = {name: default(name, minor) for name in exists - {"AllAlpha", "AllBeta"}}
        assert Release.of(minor, defaults).on == Release.of(minor).on

    def test_changes_are_listed_oldest_first_within_the_known_releases(self) -> None:
        for name, history in [*HISTORY.items(), *DEPENDENCIES.items()]:
            assert list(history) == sorted(history), name
            assert set(history) <= set(MINORS), name

    def test_every_entry_is_a_change(self) -> None:
        for name, history in HISTORY.items():
            assert all(before != after for before, after in pairwise(history.values())), name

    def test_stages_only_move_forward(self) -> None:
        order = ("alpha", "beta", "GA", "deprecated", "gone")
        for name, history in HISTORY.items():
            ranks = [order.index(words.split()[0]) for words in history.values()]
            assert (ranks == sorted(ranks)) is (name not in BACK_TO_ALPHA), name

    def test_a_gate_leaves_behind_what_it_last_was(self) -> None:
        for name, history in HISTORY.items():
            for before, after in pairwise(history):
                last, left = gate_state(name, before), gate_state(name, after)
                assert last is not None
                assert left is not None
                if left.stage == "gone":
                    assert left.on is last.on, name

    def test_every_stable_gate_is_on(self) -> None:
        for name, history in HISTORY.items():
            assert not any(words.startswith("GA off") for words in history.values()), name

    def test_dependencies_exist_wherever_they_bind(self) -> None:
        for name in DEPENDENCIES:
            for minor in MINORS:
                for needed in dependencies(name, minor):
                    assert stage(needed, minor) is not None, (name, needed, minor)

    def test_an_alias_is_no_gate_of_its_own(self) -> None:
        assert set(ALIASES.values()) <= set(HISTORY)
        assert not set(ALIASES) & set(HISTORY)
