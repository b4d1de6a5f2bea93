"""A watch's copy is what the server held at a version, whole, whatever happens on the way."""

import itertools
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
import pytest
from tests.commands import ROOT
from tests.eventually import PATIENCE, eventually
from tests.fakes.apiserver import FakeApiServer, Faults, fake_api_server, pod

from memqos.errors import InputError, Unreachable
from memqos.host.apiserver.cache import ObjectCache, WatchInterrupted
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.kubeconfig import Cluster, ClusterAccess, User
from memqos.host.apiserver.reflector import _LARGEST_LIST, _MOST_DECODED, Reflector, WatchTimings
from memqos.host.apiserver.resources import NODE_RESOURCE, POD_RESOURCE, Selection, on_node
from memqos.host.apiserver.responses import decoded_size
from memqos.host.backoff import (
    FIRST_DELAY,
    LONGEST_DELAY,
    LONGEST_RETRY_AFTER,
    backoff_delay,
)
from memqos.kube.pod import ObjectMeta, Pod

QUICK = WatchTimings(watch=(2, 3), read_timeout=0.3, short=0.05, slowness=0.01)
LARGEST = 1 << 20
Copy = dict[tuple[str, str], Pod]


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with fake_api_server() as served:
        yield served


def client(server: FakeApiServer, read_timeout: float = 5.0) -> ApiClient:
    return ApiClient(
        ClusterAccess(Cluster(server=server.url), User(), "a test"),
        read_timeout=read_timeout,
        sleep=lambda _: None,
    )


class Pauses(threading.Event):
    """What a watch waits for between two requests: notes how long it would, and does not."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.lengths.append(timeout)
        return self.is_set()


@contextmanager
def watching(
    server: FakeApiServer,
    selection: Selection | None = None,
    on_change: Callable[[], None] | None = None,
    pace: WatchTimings = QUICK,
    page: int = 500,
    pauses: "Pauses | None" = None,
) -> Iterator[Reflector[Pod]]:
    watch = Reflector(
        client(server), POD_RESOURCE, selection or on_node("node-1"),
        on_change=on_change, timings=pace, page=page,
    )  # fmt: skip
    if pauses is not None:
        watch._stopped = pauses
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


def copy_of(watch: Reflector[Pod]) -> Copy:
    return {(each.metadata.namespace or "", each.metadata.name or ""): each
            for each in watch.objects()}  # fmt: skip


def expected(server: FakeApiServer, version: int | None = None, node: str = "node-1") -> Copy:
    with server.turn:
        state = server.pods.objects if version is None else server.pods.as_of(version)
        there = {key: each for key, each in state.items() if each["spec"]["nodeName"] == node}
    return {key: msgspec.convert(each, Pod) for key, each in there.items()}


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def ever_longer(pauses: list[float], begin: int) -> bool:
    """Whether each is at most what so many failures allow, and at least half of that."""
    bounds = [
        min(LONGEST_DELAY, FIRST_DELAY * 2**failures)
        for failures in range(begin, begin + len(pauses))
    ]
    return all(bound / 2 <= each <= bound for each, bound in zip(pauses, bounds, strict=True))


def names(watch: Reflector[Pod]) -> list[str]:
    return sorted(name for _, name in copy_of(watch))


class TestFollowing:
    def test_the_copy_begins_with_what_is_there(self, server: FakeApiServer) -> None:
        for number in range(7):
            server.pods.put(pod(f"p{number}"))
        server.pods.put(pod("elsewhere", "node-2"))
        with watching(server, page=3) as watch:
            watch.wait(PATIENCE)
            assert names(watch) == [f"p{number}" for number in range(7)]

    def test_it_follows_what_happens(self, server: FakeApiServer) -> None:
        server.pods.put(pod("old"))
        with watching(server) as watch:
            watch.wait(PATIENCE)
            server.pods.put(pod("new"))
            server.pods.put(pod("old", status={"phase": "Succeeded"}))
            eventually("it follows", lambda: copy_of(watch) == expected(server))
            server.pods.delete("default", "old")
            eventually("one is gone", lambda: names(watch) == ["new"])

    def test_a_pod_that_is_bound_here_arrives_and_one_of_another_node_does_not(
        self, server: FakeApiServer
    ) -> None:
        with watching(server) as watch:
            watch.wait(PATIENCE)
            server.pods.put(pod("web", None))
            server.pods.put(pod("other", "node-2"))
            server.pods.put(pod("web", "node-1"))
            eventually("it has arrived", lambda: names(watch) == ["web"])

    def test_one_recreated_under_its_name_is_another(self, server: FakeApiServer) -> None:
        server.pods.put(pod("web-0"))
        with watching(server) as watch:
            watch.wait(PATIENCE)
            server.pods.delete("default", "web-0")
            again = pod("web-0")
            again["metadata"]["uid"] = "another"
            server.pods.put(again)
            eventually(
                "it is the other one",
                lambda: [each.metadata.uid for each in watch.objects()] == ["another"],
            )

    def test_a_change_of_no_concern_wakes_nobody(self, server: FakeApiServer) -> None:
        calls: list[str] = []
        server.pods.put(pod("web"))
        with watching(server, on_change=lambda: calls.append("")) as watch:
            watch.wait(PATIENCE)
            eventually("the first list is told", lambda: len(calls) == 1)
            server.pods.put({**pod("web"), "heartbeat": 1})
            server.pods.put(pod("new"))
            eventually("what came after it is told", lambda: len(calls) > 1)
            assert names(watch) == ["new", "web"]
            assert len(calls) == 2

    def test_bookmarks_move_the_version_along(self, server: FakeApiServer) -> None:
        server.bookmarks = 0.02
        with watching(server) as watch:
            watch.wait(PATIENCE)
            server.pods.put(pod("elsewhere", "node-2"))
            eventually("the version has moved", lambda: watch.version == "1")

    def test_other_kinds_are_followed_the_same_way(self, server: FakeApiServer) -> None:
        node = {"metadata": {"name": "node-1"}, "status": {"allocatable": {"memory": "7Gi"}}}
        server.stores["nodes"].put(node)
        watch = Reflector(
            client(server), NODE_RESOURCE, Selection(fields="metadata.name=node-1"), timings=QUICK
        )
        watch.start()
        try:
            watch.wait(PATIENCE)
            (found,) = watch.objects()
            assert found.status.allocatable == {"memory": "7Gi"}
        finally:
            watch.stop()

    def test_many_nodes_asking_at_once_spare_the_servers_database(
        self, server: FakeApiServer
    ) -> None:
        with watching(server) as watch:
            watch.wait(PATIENCE)
        (asked,) = [each for each in server.request_log if "watch" not in each.query]
        assert asked.query["resourceVersion"] == "0"
        assert asked.query["resourceVersionMatch"] == "NotOlderThan"

    def test_stopping_does_not_wait_for_the_server(self, server: FakeApiServer) -> None:
        days = WatchTimings(watch=(10**6, 10**6))
        with watching(server, pace=days) as watch:
            watch.wait(PATIENCE)
            eventually("the server is asked", lambda: server.requests(watch="1"))
        eventually("the thread is gone", lambda: "watch pods" not in threads())


class TestBadDays:
    @pytest.mark.parametrize("fault", Faults._fields)
    def test_nothing_is_missed(self, server: FakeApiServer, fault: str) -> None:
        server.faults = Faults(**{fault: 0.2})
        pace = WatchTimings(watch=(1, 1), read_timeout=0.05, short=0.0, slowness=0.01)
        with watching(server, pace=pace, page=10) as watch:
            for number in range(40):
                server.pods.put(pod(f"p{number}"))
                if number % 3 == 0:
                    server.pods.delete("default", f"p{number // 2 + number // 2 % 3 and number}")
                time.sleep(0.001)  # the watch has its turn, however short
            server.faults = Faults()
            eventually(
                "all is there", lambda: watch.is_synced and copy_of(watch) == expected(server)
            )

    def test_a_watch_goes_on_where_it_broke_off(self, server: FakeApiServer) -> None:
        server.pods.put(pod("one"))
        with watching(server) as watch:
            watch.wait(PATIENCE)
            server.faults = Faults(dropped=1.0)
            server.pods.put(pod("two"))
            eventually("it broke off", lambda: watch.fault is not None)
            server.faults = Faults()
            eventually("it goes on", lambda: names(watch) == ["one", "two"])
        assert len([each for each in server.request_log if "watch" not in each.query]) == 1
        assert {each.query["resourceVersion"] for each in server.requests(watch="1")} <= {"1", "2"}

    def test_what_the_server_has_forgotten_is_listed_again(self, server: FakeApiServer) -> None:
        server.pods.put(pod("gone"))
        with watching(server) as watch:
            watch.wait(PATIENCE)
            eventually("the server is asked", lambda: server.requests(watch="1"))
            with server.turn:
                server.pods.delete("default", "gone")
                server.pods.put(pod("new"))
                server.pods.forget()
            eventually("the new one is there", lambda: names(watch) == ["new"])
        # Never older than what was known, so that the copy does not go back in time.
        assert server.requests(resourceVersion="1", resourceVersionMatch="NotOlderThan")

    def test_more_than_may_be_kept_is_listed_again_until_it_is_less(
        self, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memqos.host.apiserver.reflector._LARGEST", 10 << 10)
        long = {"phase": "Pending", "message": "x" * (4 << 10)}
        server.pods.put(pod("one", status=long))
        with watching(server) as watch:
            watch.wait(PATIENCE)
            server.pods.put(pod("two", status=long))
            eventually("it is refused", lambda: "would take more" in str(watch.fault))
            assert names(watch) == ["one"]
            server.pods.delete("default", "one")
            eventually("the other is there", lambda: names(watch) == ["two"])

    def test_an_expired_watch_is_not_answered_with_a_storm_of_lists(
        self, server: FakeApiServer
    ) -> None:
        server.pods.put(pod("one"))
        server.pods.forgotten = 1 << 40  # every watch is from too long ago
        pauses = Pauses()
        with watching(server, pauses=pauses, pace=WatchTimings()):
            eventually("there were some pauses", lambda: len(pauses.lengths) >= 9)
        assert ever_longer(pauses.lengths[:9], begin=1)
        # But for the first, there is a pause before every list.
        lists = [each for each in server.request_log if "watch" not in each.query]
        assert len(lists) <= len(pauses.lengths) + 2

    def test_a_watch_that_ends_at_once_again_and_again_is_asked_for_ever_more_slowly(
        self, server: FakeApiServer
    ) -> None:
        server.answers["/api/v1/pods"] = (
            200, {}, b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}\n',
        )  # fmt: skip
        pauses = Pauses()
        with watching(server, pauses=pauses, pace=WatchTimings(short=PATIENCE)):
            eventually("there were some pauses", lambda: len(pauses.lengths) >= 9)
        assert ever_longer(pauses.lengths[:9], begin=0)

    def test_a_connection_that_is_gone_without_a_word_is_noticed(
        self, server: FakeApiServer
    ) -> None:
        pace = WatchTimings(watch=(0, 0), read_timeout=0.2, short=0.0, slowness=0.01)
        with watching(server, pace=pace) as watch:
            watch.wait(PATIENCE)
            server.faults = Faults(silent=1.0)
            server.pods.put(pod("new"))
            eventually("it is noticed", lambda: "no answer within" in str(watch.fault))
            server.faults = Faults()
            eventually("the new one is there", lambda: names(watch) == ["new"])

    def test_a_server_that_is_away_for_a_while_leaves_the_copy_as_it_was(self) -> None:
        with fake_api_server() as server:
            server.pods.put(pod("web"))
            watch = Reflector(client(server), POD_RESOURCE, timings=QUICK)
            watch.start()
            watch.wait(PATIENCE)
        try:
            eventually("it is missed", lambda: "nothing listens" in str(watch.fault))
            assert names(watch) == ["web"]
            assert watch.stale_for > 0
        finally:
            watch.stop()

    def test_a_server_that_is_back_is_believed_to_be_even_if_it_has_nothing_to_tell(
        self, server: FakeApiServer
    ) -> None:
        server.bookmarks = 1000.0
        with watching(server, pace=WatchTimings(watch=(1, 1), short=0.0, slowness=0.05)) as watch:
            watch.wait(PATIENCE)
            server.answers["/api/v1/pods"] = (503, {}, b"")
            eventually("it is missed", lambda: watch.fault is not None)
            del server.answers["/api/v1/pods"]
            eventually("it is back", lambda: watch.fault is None)
            assert watch.version == "0"

    def test_a_database_put_back_to_an_earlier_state_is_believed(
        self, server: FakeApiServer
    ) -> None:
        for number in range(5):
            server.pods.put(pod(f"p{number}"))
        pace = WatchTimings(watch=(0, 0), read_timeout=0.1, short=0.0, relist=0.0, slowness=0.01)
        with watching(server, pace=pace) as watch:
            watch.wait(PATIENCE)
            with server.turn:
                server.version = 2
                for number in (2, 3, 4):
                    del server.pods.objects["default", f"p{number}"]
                server.pods.history.clear()
            eventually("it is believed", lambda: names(watch) == ["p0", "p1"])

    def test_an_object_that_cannot_be_read_stops_the_copy_and_is_reported(
        self, server: FakeApiServer
    ) -> None:
        with watching(server) as watch:
            watch.wait(PATIENCE)
            server.pods.put(pod("bad", spec={"nodeName": "node-1", "containers": 5}))
            server.pods.put(pod("good"))
            eventually("it is told", lambda: isinstance(watch.fault, InputError))
            assert names(watch) == []
            server.pods.put(pod("bad"))
            server.pods.forget()
            eventually("both are there", lambda: names(watch) == ["bad", "good"])

    def test_nothing_is_known_before_the_first_list(self, server: FakeApiServer) -> None:
        server.faults = Faults(refused=1.0)
        with watching(server) as watch:
            eventually("it was refused", lambda: watch.fault is not None)
            with pytest.raises(Unreachable, match=r"a bad day|too busy|has expired"):
                watch.wait(0)
            assert not watch.is_synced

    def test_silence_is_no_empty_list(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            asked = ApiClient(
                ClusterAccess(Cluster(server=url), User(), "a test"), read_timeout=PATIENCE
            )
            watch = Reflector(asked, POD_RESOURCE)
            watch.start()
            with pytest.raises(Unreachable, match="no list of pods within"):
                watch.wait(0.1)
        watch.stop()

    def test_a_listener_that_fails_does_not_end_the_watch(self, server: FakeApiServer) -> None:
        def fail() -> None:
            raise RuntimeError("the loop is closed")

        with watching(server, on_change=fail) as watch:
            watch.wait(PATIENCE)
            server.pods.put(pod("web"))
            eventually("it has arrived", lambda: names(watch) == ["web"])

    @pytest.mark.parametrize("asked", ["1e300", "inf", "nan", "86400", "9" * 400])
    def test_no_time_that_a_server_asks_for_ends_or_blinds_the_watch(
        self, server: FakeApiServer, asked: str
    ) -> None:
        pace = WatchTimings(watch=(1, 1), short=0.0, slowness=0.001)
        with watching(server, pace=pace) as watch:
            watch.wait(PATIENCE)
            server.refusals = [(429, {"Retry-After": asked})] * 2
            eventually("the server was asked twice", lambda: not server.refusals)
            server.pods.put(pod("new"))
            eventually("the pod is known", lambda: names(watch) == ["new"])
            assert watch.is_synced

    def test_an_event_that_never_comes_in_whole_is_reported_until_one_does(
        self, server: FakeApiServer
    ) -> None:
        pace = WatchTimings(event=0.05, slowness=0.01)
        with watching(server, pace=pace) as watch:
            watch.wait(PATIENCE)
            server.bookmarks, server.faults = PATIENCE, Faults(dripped=1.0)
            server.pods.put(pod("new"))
            eventually("it is told", lambda: "not whole within 0.05 s" in str(watch.fault))
            asked = len(server.request_log)
            # A server that answers, and drips again, has not come back.
            eventually("it was asked again", lambda: len(server.request_log) > asked + 2)
            assert "not whole within" in str(watch.fault)
            assert names(watch) == []
            server.faults = Faults()
            eventually("the new one is there", lambda: names(watch) == ["new"])
            eventually("all is well", lambda: watch.fault is None)

    def test_a_watch_is_ended_even_if_it_goes_on_talking(self, server: FakeApiServer) -> None:
        server.bookmarks = 0.01
        # 0 is no bound of time for the server, which tells a bookmark at every look.
        pace = WatchTimings(watch=(0, 0), read_timeout=0.3, short=0.0)
        with watching(server, pace=pace) as watch:
            eventually("it is ended", lambda: "does not end within 0.6 s" in str(watch.fault))
            eventually("it goes on", lambda: watch.fault is None)

    def test_a_copy_of_which_nothing_whole_came_for_long_is_not_synced(
        self, server: FakeApiServer
    ) -> None:
        server.bookmarks = PATIENCE
        with watching(server, pace=WatchTimings(stale=0.2, slowness=0.01)) as watch:
            watch.wait(PATIENCE)
            eventually("it is not synced", lambda: not watch.is_synced)
            assert "no complete response for pods for 0.2 s" in str(watch.fault)
            assert watch.objects() == []
            watch.wait(0)  # the last state stays in force

            def is_synced_again() -> bool:
                server.pods.put(pod("new"))
                return watch.is_synced and watch.fault is None

            eventually("it is again", is_synced_again)

    def test_a_watch_that_has_ended_does_not_claim_to_be_synced(
        self, server: FakeApiServer
    ) -> None:
        with watching(server) as watch:
            watch.wait(PATIENCE)
            assert watch.is_synced
        assert not watch.is_synced

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_not_even_one_that_ended_by_itself(self, server: FakeApiServer) -> None:
        # Nobody can wait for so long: what no other handler catches ends the thread.
        with watching(server, pace=WatchTimings(watch=(1, 1), slowness=float("inf"))) as watch:
            watch.wait(PATIENCE)
            server.refusals = [(503, {})]
            eventually("the watch has ended", lambda: not watch.is_synced)
            assert "the watch of pods has ended" in str(watch.fault)
            with pytest.raises(Unreachable, match="has ended"):
                watch.wait(0.01)

    def test_an_error_of_its_own_is_told_by_its_place_and_not_by_its_text(
        self, server: FakeApiServer
    ) -> None:
        def fail() -> None:
            raise ValueError("Invalid header value b'Bearer secret'")

        with watching(server, on_change=fail, pace=WatchTimings(slowness=100)) as watch:
            eventually("it is told", lambda: "ValueError in test_api_watch.py" in str(watch.fault))
            assert "secret" not in str(watch.fault)


EVERYTHING_AT_ONCE = Faults(
    dropped=0.004, expired=0.002, failed=0.002, ended=0.004, silent=0.0005,
    refused=0.2, forgotten=0.1, slow=0.1, stale=0.5,
)  # fmt: skip
ROUNDS = 20
LIFE_CYCLES = 500
"""A round: 10,000 in all."""


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_after_any_number_of_lives_and_faults_the_copy_is_the_servers(
    server: FakeApiServer, seed: int
) -> None:
    server.dice, server.faults, server.bookmarks = random.Random(-seed), EVERYTHING_AT_ONCE, 0.05
    looks = random.Random(seed)
    compared: list[bool] = []

    def look() -> None:
        version = int(watch.version)
        with server.turn:
            if version >= server.pods.forgotten and looks.random() < 0.2:
                compared.append(copy_of(watch) == expected(server, version))

    def is_the_servers() -> bool:
        return watch.is_synced and copy_of(watch) == expected(server)

    pace = WatchTimings(watch=(0, 1), read_timeout=0.1, short=0.0, slowness=0.002)
    with watching(server, on_change=look, pace=pace, page=50) as watch:
        live_through(server, random.Random(seed))
        server.faults = Faults()
        eventually("it is the server's", is_the_servers)
        # And it stays so: what comes now is followed, too.
        for number in itertools.count():
            server.pods.put(pod(f"late-{number}"))
            eventually("it is the server's again", is_the_servers)
            if compared:
                break
    assert all(compared)


def live_through(server: FakeApiServer, dice: random.Random) -> None:
    """Pods are created, bound, changed and deleted, many at a time and in any order."""
    alive: list[tuple[str, int]] = []
    born = 0
    while born < LIFE_CYCLES or len(alive) > 30:
        if born < LIFE_CYCLES and (len(alive) < 20 or dice.random() < 0.4):
            # Names come again, as those of a StatefulSet do.
            name = f"p{dice.randrange(200)}"
            if ("default", name) not in server.pods.objects:
                server.pods.put(pod(name, None))
                alive.append((name, 0))
                born += 1
            continue
        index = dice.randrange(len(alive))
        name, age = alive[index]
        if age == 3:
            server.pods.delete("default", name)
            alive.pop(index)
            continue
        node = dice.choice(["node-1", "node-1", "node-2"]) if age == 0 else (
            server.pods.objects["default", name]["spec"]["nodeName"]
        )  # fmt: skip
        phase = dice.choice(["Pending", "Running", "Succeeded"])
        server.pods.put(pod(name, node, status={"phase": phase, "n": dice.random()}))
        alive[index] = name, age + 1
        if dice.random() < 0.2:
            time.sleep(0.001)  # the watch has its turn, however short


class TestMirror:
    def test_a_version_is_taken_together_with_what_it_is_of(self) -> None:
        mirror = ObjectCache(Pod, LARGEST)
        mirror.replace([], "5")
        assert mirror.apply(event("ADDED", "a", "6")) == "changed"
        assert (mirror.version, len(mirror.objects)) == ("6", 1)

    @pytest.mark.parametrize(
        "line",
        [
            b'{"type":"ADDED","object":{"metadata":{"na',
            b"[]",
            b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}',
            b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"},"spec":1}}',
            b'{"type":"MOVED","object":{"metadata":{"resourceVersion":"7"}}}',
            b"\xff",
        ],
    )
    def test_a_line_that_cannot_be_read_changes_nothing(self, line: bytes) -> None:
        mirror = ObjectCache(Pod, LARGEST)
        mirror.replace([], "5")
        with pytest.raises(InputError):
            mirror.apply(line)
        assert (mirror.version, mirror.objects) == ("5", {})

    @pytest.mark.parametrize("code", [429, 500, 503, 504])
    def test_an_error_that_passes_keeps_the_version(self, code: int) -> None:
        mirror = ObjectCache(Pod, LARGEST)
        mirror.replace([], "5")
        with pytest.raises(WatchInterrupted):
            mirror.apply(error(code))
        assert mirror.version == "5"

    def test_an_error_nobody_knows_demands_a_list(self) -> None:
        mirror = ObjectCache(Pod, LARGEST)
        mirror.replace([], "5")
        with pytest.raises(WatchInterrupted):
            mirror.apply(error(400))
        assert (mirror.version, mirror.newest_version) == (None, "5")

    def test_a_version_that_expired_demands_a_list_no_older(self) -> None:
        mirror = ObjectCache(Pod, LARGEST)
        mirror.replace([], "5")
        assert mirror.apply(error(410)) == "expired"
        assert (mirror.version, mirror.newest_version) == (None, "5")

    def test_more_than_it_may_keep_changes_nothing_and_demands_a_list(self) -> None:
        mirror = ObjectCache(Pod, 3 * decoded_size(event("ADDED", "a", "6")) // 2)
        mirror.replace([], "5")
        for version in ("6", "7", "8"):
            assert mirror.apply(event("MODIFIED", "a", version, node=version)) == "changed"
            mirror.apply(event("DELETED", "a", version))
        for name in ("a", "b"):
            mirror.apply(event("ADDED", name, "9"))
        with pytest.raises(InputError, match="would take more than"):
            mirror.apply(event("ADDED", "c", "9"))
        assert (mirror.version, mirror.newest_version, len(mirror.objects)) == (None, "9", 2)
        mirror.replace([], "9")
        assert mirror.apply(event("ADDED", "h", "9")) == "changed"

    def test_a_list_of_more_than_it_may_keep_changes_nothing(self) -> None:
        mirror = ObjectCache(Pod, 4 << 10)
        with pytest.raises(InputError, match="a list would take more than"):
            mirror.replace([Pod(ObjectMeta(name=str(index))) for index in range(20)], "5")
        assert (mirror.version, mirror.objects) == (None, {})


FLOODS: Final = {
    "of pods": (b'{"items":[', b"{}", b"]}"),
    "of numbers": (b'{"items":[', b"1", b"]}"),
    "of containers": (b'{"items":[{"spec":{"containers":[', b"{}", b"]}}]}"),
    "of requests": (
        b'{"items":[{"spec":{"containers":[',
        b'{"resources":{"requests":{"":""}}}',
        b"]}}]}",
    ),
    "of owners": (b'{"items":[{"metadata":{"ownerReferences":[', b'{"":{}}', b"]}}]}"),
    "of managed fields": (b'{"items":[{"metadata":{"managedFields":[', b"{}", b"]}}]}"),
    "of variables": (b'{"items":[{"spec":{"containers":[{"env":[', b"{}", b"]}]}}]}"),
    "of one name": (b'{"items":[{"metadata":{"name":"', b"aaaaaaaa", b'"}}]}'),
    "of one wide name": (b'{"items":[{"metadata":{"name":"\\ud83d\\ude00', b"aaaaaaaa", b'"}}]}'),
    "of wide names": (
        b'{"items":[',
        b'{"metadata":{"name":"%s\xf0\x9f\x98\x80"}}' % (b"a" * 100_000),
        b"]}",
    ),
}
FOLLOWER: Final = """
import sys
import memqos.agent.loop
from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.kubeconfig import Cluster, ClusterAccess, User
from memqos.host.apiserver.reflector import Reflector
from memqos.host.apiserver.resources import POD_RESOURCE
from tests.eventually import eventually
access = ClusterAccess(Cluster(server=sys.argv[1]), User(), "a test")
watch = Reflector(ApiClient(access), POD_RESOURCE)
watch.start()
eventually("an answer", lambda: watch.is_synced or watch.fault)
text = open("/proc/self/status").read()
print(int(text.partition("VmHWM:")[2].split()[0]) >> 10)
"""


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("is_decoded", [True, False])
def test_a_hostile_list_does_not_take_an_agent_past_its_memory(
    server: FakeApiServer, flood: str, is_decoded: bool
) -> None:
    """As large as may just be decoded, or received."""
    head, unit, tail = FLOODS[flood]
    separator = b"" if flood.startswith("of one") else b","
    sizes = (_MOST_DECODED, decoded_size) if is_decoded else (_LARGEST_LIST, len)
    count = (sizes[0] - sizes[1](head + tail)) // sizes[1](unit + separator) - 1
    count = min(count, _LARGEST_LIST // len(unit + separator) - 100)
    body = head + separator.join([unit] * count) + tail
    server.answers["/api/v1/pods"] = (200, {"Content-Type": "application/json"}, body)
    done = subprocess.run(
        [sys.executable, "-c", FOLLOWER, server.url],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert int(done.stdout) < 110


def test_500_pods_of_20_kib_are_listed() -> None:
    """Most objects of a pod are in its managedFields, and in the environment of its containers."""
    fields: Mapping[str, object] = {
        f'k:{{"name":"VARIABLE_{index}"}}': {".": {}, "f:name": {}} for index in range(200)
    }
    managers = [{"manager": name, "fieldsV1": {"f:spec": fields}} for name in ("a", "b")]
    environment = [{"name": f"VARIABLE_{index}", "value": "a value"} for index in range(60)]
    pod = {
        "metadata": {"name": "a", "managedFields": managers},
        "spec": {"containers": [{"name": "a", "env": environment}]},
    }
    text = b",".join([msgspec.json.encode(pod)] * 500)
    assert 10_000_000 < len(text) < _LARGEST_LIST
    assert len(text) < decoded_size(text) < len(text) + (1 << 20)


@pytest.mark.parametrize(
    "text",
    [
        b'{"spec":{"containers":[{},{},{}]}}',
        b'{"env":[[{},{}]]}',
        b'{"env":[{},{}',
        b'{"env":{"a":[{},{}]}}',
        b'{"name":"env\\":[{},{}]"}',
    ],
)
def test_what_may_be_decoded_counts(text: bytes) -> None:
    assert decoded_size(text) == len(text) + 250 * text.count(b"{") + 130 * text.count(b",")


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ('{"a":"b","é\\u00e9":"ÿ\\\\"}', ""),
        ('{"a":"\\u0100a"}', '"\\u0100a"'),
        ('["a","\\"中"', '"\\"中"'),
    ],
)
def test_a_wide_character_has_its_whole_string_take_more(text: str, wide: str) -> None:
    commas, braces = text.count(","), text.count("{")
    extra = 2 * len(wide.encode())
    assert decoded_size(text.encode()) == len(text.encode()) + 250 * braces + 130 * commas + extra
    widest = text.replace("中", "😀").replace("u0100", "ud83d\\ude00")
    assert decoded_size(widest.encode()) >= 4 * len(wide) + decoded_size(b" " * len(text))


def event(type: str, name: str, version: str, **spec: str) -> bytes:
    item = {"metadata": {"name": name, "resourceVersion": version}, "spec": spec}
    return msgspec.json.encode({"type": type, "object": item})


def error(code: int) -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": {"kind": "Status", "code": code}})


class TestBackOff:
    def test_it_grows_and_is_bounded(self) -> None:
        waits = [backoff_delay(failures, None, 1.0) for failures in range(20)]
        assert waits == sorted(waits)
        assert (waits[0], waits[-1]) == (FIRST_DELAY, LONGEST_DELAY)

    def test_chance_spreads_it(self) -> None:
        assert (
            backoff_delay(4, None, 0.0) < backoff_delay(4, None, 0.5) < backoff_delay(4, None, 1.0)
        )

    @pytest.mark.parametrize("asked", [86_400.0, 1e300, float("inf")])
    def test_no_server_is_waited_for_longer_than_a_minute_or_so(self, asked: float) -> None:
        assert LONGEST_RETRY_AFTER <= backoff_delay(0, asked, 0.5) <= 1.2 * LONGEST_RETRY_AFTER

    @pytest.mark.parametrize("chance", [0.0, 1.0])
    def test_it_is_never_shorter_than_the_server_asks_for(self, chance: float) -> None:
        assert backoff_delay(0, 7.0, chance) >= 7.0
