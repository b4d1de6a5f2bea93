"""Events about what is done to pods: once, short, and never in a flood."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.eventually import PATIENCE, eventually
from tests.fakes.apiserver import FakeApiServer, Faults, ReceivedRequest, fake_api_server

from memqos.host.apiserver.client import ApiClient
from memqos.host.apiserver.events import (
    AT_ONCE,
    PAUSE_SECONDS,
    QUEUE_LIMIT,
    SECONDS_EACH,
    EventPoster,
)
from memqos.host.apiserver.kubeconfig import Cluster, ClusterAccess, User
from memqos.kube.events import (
    FORGET_SECONDS,
    MAX_TRACKED,
    REFRESH_SECONDS,
    Clause,
    Create,
    EventBook,
    EventReason,
    PodEvent,
    Refresh,
    clauses,
    event_of,
)

START = 1_700_000_000.0


def happening(uid: str = "u", reason: EventReason = "MemoryProtected", note: str = "n") -> PodEvent:
    return PodEvent("shop", f"web-{uid}", uid, reason, note)


def client(server: FakeApiServer) -> ApiClient:
    return ApiClient(
        ClusterAccess(Cluster(server=server.url), User(), "a test"), read_timeout=PATIENCE
    )


class TestBook:
    def test_the_first_time_is_reported(self) -> None:
        assert isinstance(EventBook().decide(happening(), START), Create)

    def test_the_next_times_are_counted(self) -> None:
        book = EventBook()
        first = book.decide(happening(), START)
        assert isinstance(first, Create)
        assert [book.decide(happening(), START + second) for second in (1, 2, 3)] == [None] * 3
        again = book.decide(happening(), START + REFRESH_SECONDS)
        assert again == Refresh(happening(), first.name, 5)

    def test_a_clock_that_is_set_back_drops_no_event(self) -> None:
        book = EventBook()
        assert isinstance(book.decide(happening(note="1"), START), Create)
        assert isinstance(book.decide(happening(note="2"), START - 7200), Create)

    def test_after_an_hour_it_is_news(self) -> None:
        book = EventBook()
        first = book.decide(happening(), START)
        later = book.decide(happening(), START + FORGET_SECONDS)
        assert isinstance(first, Create)
        assert isinstance(later, Create)
        assert first.name != later.name

    def test_another_value_is_another_event(self) -> None:
        book = EventBook()
        assert isinstance(book.decide(happening(note="64Mi"), START), Create)
        assert isinstance(book.decide(happening(note="65Mi"), START), Create)

    def test_events_of_a_pod_that_flaps_are_limited(self) -> None:
        book = EventBook()
        decisions = [book.decide(happening(note=str(n)), START + n) for n in range(60)]
        assert sum(each is not None for each in decisions) == 5
        assert book.dropped == 55

    def test_what_was_too_much_may_be_reported_later(self) -> None:
        book = EventBook()
        for n in range(60):
            book.decide(happening(note=str(n)), START + n)
        assert book.decide(happening(note="60"), START + 61) is None
        assert isinstance(book.decide(happening(note="60"), START + 600), Create)

    def test_whoever_comes_after_gives_an_event_the_same_name(self) -> None:
        first = EventBook().decide(happening(), START)
        assert first == EventBook().decide(happening(), START + 60)
        others = [happening("v"), happening(reason="MemoryDrifted"), happening(note="m")]
        assert all(EventBook().decide(other, START) != first for other in others)

    def test_removed_pods_are_forgotten(self) -> None:
        book = EventBook()
        book.decide(happening("a"), START)
        book.forget_pods_but(["b"])
        assert isinstance(book.decide(happening("a"), START + 1), Create)

    def test_memory_is_bounded(self) -> None:
        book = EventBook()
        for n in range(MAX_TRACKED + 50):
            assert isinstance(book.decide(happening(str(n)), START + 10 * n), Create)
        assert len(book._sent) <= MAX_TRACKED

    @given(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.floats(0, 900)), max_size=60
        )
    )
    def test_counts_never_lose_what_happened(self, happened: list[tuple[str, str, float]]) -> None:
        book, now = EventBook(), START
        counted: dict[PodEvent, int] = {}
        for uid, note, wait in happened:
            now += wait
            it = happening(uid, note=note)
            decision = book.decide(it, now)
            if isinstance(decision, Create):
                counted[it] = 1
            elif it in counted:
                counted[it] += 1
            if isinstance(decision, Refresh):
                assert decision.count == counted[it]


class TestEvents:
    @pytest.mark.parametrize("reason", get_args(EventReason))
    def test_they_have_what_the_server_requires(self, reason: EventReason) -> None:
        create = Create(happening(reason=reason, note="€" * 2000), "web-u.1")
        event = event_of(create, "n" * 300, "2026-01-01T00:00:00.000000Z")
        assert len(event["note"].encode()) <= 1024
        assert len(event["reportingInstance"]) <= 128
        assert event["action"]
        assert event["type"] in ("Normal", "Warning")
        assert event["regarding"]["uid"] == "u"

    def test_their_names_are_names(self) -> None:
        long = PodEvent("shop", "x" * 199 + "." + "y" * 53, "u", "MemoryDrifted", "n")
        decision = EventBook().decide(long, START)
        assert isinstance(decision, Create)
        assert len(decision.name) <= 253
        assert ".." not in decision.name


def test_of_which_containers_a_note_is_can_be_reported() -> None:
    note = "protected from reclaim: memory.min 5Mi of b-2; memory.low 5Mi of the pod"
    assert clauses("MemoryProtected", note) == (
        Clause("memory.min 5Mi of b-2", "b-2", "memory.min", "5Mi"),
        Clause("memory.low 5Mi of the pod", None, "memory.low", "5Mi"),
    )
    assert clauses("AnnotationIgnored", "a; b of c") == (Clause("a; b of c"),)
    assert clauses("GuardWidened", "memory.hi…") == (Clause("memory.hi…"),)


class Clock:
    """Goes on when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class TestPoster:
    @pytest.fixture
    def server(self) -> Iterator[FakeApiServer]:
        with fake_api_server() as served:
            yield served

    @pytest.fixture
    def poster(self, server: FakeApiServer) -> Iterator[EventPoster]:
        made = EventPoster(client(server), "node-1", slowness=0.05)
        made.start()
        yield made
        made.stop()

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def timed(self, server: FakeApiServer, clock: Clock) -> Iterator[EventPoster]:
        """One for which time goes by as the clock says."""
        made = EventPoster(client(server), "node-1", clock=clock)
        made.start()
        yield made
        made.stop()

    def sent(self, server: FakeApiServer, count: int) -> list[ReceivedRequest]:
        eventually(f"{count} requests came", lambda: len(server.request_log) >= count)
        return server.request_log

    def test_an_event_is_sent(self, server: FakeApiServer, poster: EventPoster) -> None:
        poster.post(happening())
        (asked,) = self.sent(server, 1)
        body: dict[str, Any] = json.loads(asked.body)
        assert asked.method == "POST"
        assert body["metadata"]["namespace"] == "shop"
        assert body["reason"] == "MemoryProtected"
        assert body["eventTime"].endswith("Z")
        assert len(body["eventTime"]) == len("2026-01-01T00:00:00.000000Z")

    def test_an_event_has_the_time_at_which_it_happened_however_late_it_is_sent(
        self, server: FakeApiServer, poster: EventPoster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 1_772_445_600.0
        monkeypatch.setattr("memqos.host.apiserver.events.time.time", lambda: now)
        server.refusals = [(503, {})]
        poster.post(happening(), ago=3)
        now += 60
        body = json.loads(self.sent(server, 2)[1].body)
        assert body["eventTime"] == "2026-03-02T09:59:57.000000Z"

    def test_one_that_happens_again_is_refreshed(
        self, server: FakeApiServer, poster: EventPoster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = START
        monkeypatch.setattr("memqos.host.apiserver.events.time.time", lambda: now)
        poster.post(happening())
        first = json.loads(self.sent(server, 1)[0].body)["metadata"]["name"]
        now = START + REFRESH_SECONDS
        poster.post(happening())
        asked = self.sent(server, 2)[1]
        assert (asked.method, asked.path.rpartition("/")[2]) == ("PATCH", first)
        assert asked.headers["Content-Type"] == "application/merge-patch+json"
        assert json.loads(asked.body)["series"]["count"] == 2

    def test_one_that_cannot_be_sent_does_not_hold_up_the_others(
        self, server: FakeApiServer, poster: EventPoster
    ) -> None:
        poster.post(happening("u1", note="half a character: \udc80"))
        poster.post(happening("u2"))
        eventually("the second event", lambda: poster.sent == 1)
        assert poster.dropped == 1
        assert "UnicodeEncodeError" in str(poster.complaint())

    def test_a_missing_right_is_reported_once_and_not_asked_for_again_and_again(
        self, server: FakeApiServer, timed: EventPoster, clock: Clock
    ) -> None:
        poster = timed
        server.forbidden = {("POST", "events")}
        poster.post(happening())
        eventually("it is dropped", lambda: poster.dropped == 1)
        text = str(poster.complaint())
        assert "may not create events in namespace shop (403)" in text
        assert 'apiGroups: ["events.k8s.io"]' in text
        assert "verbs: [create, patch]" in text
        for n in range(20):
            poster.post(happening(str(n)))
        assert len(server.request_log) == 1
        assert poster.dropped == 21
        clock.now += PAUSE_SECONDS
        poster.post(happening("late"))
        eventually("one more is dropped", lambda: poster.dropped == 22)
        assert len(server.request_log) == 2
        assert poster.complaint() is None

    def test_events_of_another_namespace_are_sent_all_the_same(
        self, server: FakeApiServer, poster: EventPoster
    ) -> None:
        server.refusals = [(403, {})]
        poster.post(happening())
        poster.post(PodEvent("till", "pos-0", "p", "MemoryProtected", "n"))
        eventually("it is sent", lambda: poster.sent == 1)
        assert [key[0] for key in server.stores["events"].objects] == ["till"]

    def test_a_right_given_later_is_made_use_of(
        self, server: FakeApiServer, timed: EventPoster, clock: Clock
    ) -> None:
        server.refusals = [(403, {})]
        timed.post(happening())
        eventually("it is dropped", lambda: timed.dropped == 1)
        clock.now += PAUSE_SECONDS
        timed.post(happening())
        eventually("it is sent", lambda: timed.sent == 1)
        assert timed.fault is None

    @pytest.mark.parametrize("status", [401, 429, 500, 503])
    def test_a_busy_server_is_tried_again_and_nothing_is_lost(
        self, server: FakeApiServer, poster: EventPoster, status: int
    ) -> None:
        server.refusals = [(status, {"Retry-After": "0"} if status == 429 else {})] * 2
        poster.post(happening("a"))
        poster.post(happening("b"))
        eventually("both are sent", lambda: poster.sent == 2)
        assert poster.dropped == 0
        assert str(status) in str(poster.complaint())
        assert poster.complaint() is None

    def test_it_waits_as_long_as_the_server_requests(self, server: FakeApiServer) -> None:
        poster = EventPoster(client(server), "node-1")
        server.refusals = [(429, {"Retry-After": "1"})]
        poster.start()
        began = time.monotonic()
        poster.post(happening())
        eventually("it is sent", lambda: poster.sent == 1)
        assert time.monotonic() - began >= 1
        poster.stop()

    def test_while_the_server_is_away_events_wait_for_it(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        access = ClusterAccess(Cluster(server=f"http://127.0.0.1:{port}"), User(), "a test")
        poster = EventPoster(ApiClient(access), "node-1", slowness=0.05)
        poster.start()
        poster.post(happening())
        eventually("it is tried", lambda: poster.fault is not None)
        with fake_api_server(port=port) as server:
            eventually("it is sent", lambda: poster.sent == 1)
            assert len(server.stores["events"].objects) == 1
        poster.stop()
        assert poster.dropped == 0

    def test_one_that_another_agent_has_sent_is_not_sent_again(
        self, server: FakeApiServer, poster: EventPoster
    ) -> None:
        for number in range(2):
            agent = EventPoster(client(server), "node-1")
            agent.start()
            agent.post(happening())
            self.sent(server, number + 1)
            agent.stop()
            assert agent.complaint() is None
            assert agent.dropped == 0
        assert len(server.stores["events"].objects) == 1

    def test_a_namespace_that_is_being_deleted_is_no_missing_right(
        self, server: FakeApiServer, poster: EventPoster
    ) -> None:
        body = {"code": 403, "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
        path = "/apis/events.k8s.io/v1/namespaces/shop/events"
        server.answers[path] = (403, {}, json.dumps(body).encode())
        poster.post(happening())
        self.sent(server, 1)
        poster.post(PodEvent("till", "pos-0", "p", "MemoryProtected", "n"))
        eventually("it is sent", lambda: poster.sent == 1)
        assert poster.complaint() is None

    def test_events_of_a_node_full_of_pods_are_not_sent_all_at_once(
        self, timed: EventPoster, clock: Clock
    ) -> None:
        for n in range(250):
            timed.post(happening(str(n)))
        eventually("some are sent", lambda: timed.sent == AT_ONCE)
        clock.now += SECONDS_EACH
        timed.post(happening("late"))
        eventually("the next is sent", lambda: timed.sent == AT_ONCE + 1)
        timed.stop()
        assert (timed.sent, timed.waiting, timed.dropped) == (AT_ONCE + 1, 250 - AT_ONCE, 0)

    @given(st.lists(st.tuples(st.integers(0, 900), st.sampled_from("abc")), max_size=1500))
    @settings(max_examples=25)
    def test_what_waits_is_bounded_and_what_is_too_much_is_counted(
        self, notes: list[tuple[int, str]]
    ) -> None:
        access = ClusterAccess(Cluster(server="http://127.0.0.1:9"), User(), "a test")
        poster = EventPoster(ApiClient(access), "node-1")  # its thread is not started
        for uid, note in notes:
            poster.post(happening(str(uid), note=note))
            assert poster.waiting <= QUEUE_LIMIT
        assert poster.waiting + poster.dropped + poster.sent <= len(notes)
        assert poster.dropped or poster.waiting == len(set(notes))

    def test_bad_days_of_a_server_cost_nothing_but_time(self, server: FakeApiServer) -> None:
        poster = EventPoster(client(server), "node-1", pause=0.01, slowness=0.001)
        server.faults = Faults(refused=0.5)
        poster.start()
        for n in range(300):
            poster.post(happening(str(n)))
            assert poster.waiting <= QUEUE_LIMIT
        eventually("all are done with", lambda: poster.sent + poster.dropped == 300)
        assert len(server.stores["events"].objects) == poster.sent
        # 410 is no answer to an event that is worth another try; the others are.
        assert poster.sent > 200
        poster.stop()

    def test_sending_never_blocks(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            asked = ApiClient(
                ClusterAccess(Cluster(server=url), User(), "a test"), read_timeout=PATIENCE
            )
            poster = EventPoster(asked, "n")
            poster.start()
            poster.post(happening("first"))
            eventually("the first is being sent", lambda: poster.waiting == 0)
            for n in range(1000):
                poster.post(happening(str(n)))
            # All of them were passed on while the first had no response.
            assert poster.waiting + poster.dropped == 1000
        poster.stop()
