"""Pods are told what is done to them: once, briefly, and never in a flood."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.apiserver import Asked, FakeApiServer, fake_api_server

from memqos.api.events import (
    FORGET_SECONDS,
    KNOWN,
    REFRESH_SECONDS,
    Create,
    EventBook,
    Happening,
    Reason,
    Refresh,
    event_of,
)
from memqos.host.apiserver.access import Access, Cluster, User
from memqos.host.apiserver.connection import ApiServer
from memqos.host.apiserver.events import EventPoster

START = 1_700_000_000.0


def happening(uid: str = "u", reason: Reason = "MemoryProtected", note: str = "n") -> Happening:
    return Happening("shop", f"web-{uid}", uid, reason, note)


class TestBook:
    def test_the_first_time_is_told(self) -> None:
        assert isinstance(EventBook().decide(happening(), START), Create)

    def test_the_next_times_are_counted(self) -> None:
        book = EventBook()
        first = book.decide(happening(), START)
        assert isinstance(first, Create)
        assert [book.decide(happening(), START + second) for second in (1, 2, 3)] == [None] * 3
        again = book.decide(happening(), START + REFRESH_SECONDS)
        assert again == Refresh(happening(), first.name, 5)

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

    def test_a_pod_that_flaps_is_not_told_for_ever(self) -> None:
        book = EventBook()
        told = [book.decide(happening(note=str(n)), START + n) for n in range(60)]
        assert sum(each is not None for each in told) == 5
        assert book.dropped == 55

    def test_nor_is_a_node_full_of_pods_told_all_at_once(self) -> None:
        book = EventBook()
        told = [book.decide(happening(str(n)), START) for n in range(250)]
        assert sum(each is not None for each in told) == 30

    def test_what_was_too_much_may_be_told_later(self) -> None:
        book = EventBook()
        for n in range(250):
            book.decide(happening(str(n)), START)
        assert book.decide(happening("249"), START + 1) is None
        assert isinstance(book.decide(happening("249"), START + 60), Create)

    def test_pods_that_are_gone_are_forgotten(self) -> None:
        book = EventBook()
        book.decide(happening("a"), START)
        book.forget_pods_but(["b"])
        assert isinstance(book.decide(happening("a"), START + 1), Create)

    def test_memory_is_bounded(self) -> None:
        book = EventBook()
        for n in range(KNOWN + 50):
            assert isinstance(book.decide(happening(str(n)), START + 10 * n), Create)
        assert len(book._known) <= KNOWN

    @given(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.floats(0, 900)), max_size=60
        )
    )
    def test_counts_never_lose_what_happened(self, happened: list[tuple[str, str, float]]) -> None:
        book, now = EventBook(), START
        counted: dict[Happening, int] = {}
        for uid, note, wait in happened:
            now += wait
            it = happening(uid, note=note)
            told = book.decide(it, now)
            if isinstance(told, Create):
                counted[it] = 1
            elif it in counted:
                counted[it] += 1
            if isinstance(told, Refresh):
                assert told.count == counted[it]


class TestEvents:
    @pytest.mark.parametrize("reason", get_args(Reason))
    def test_they_have_what_the_server_wants(self, reason: Reason) -> None:
        create = Create(happening(reason=reason, note="€" * 2000), "web-u.1")
        event = event_of(create, "n" * 300, "2026-01-01T00:00:00.000000Z")
        assert len(event["note"].encode()) <= 1024
        assert len(event["reportingInstance"]) <= 128
        assert event["action"]
        assert event["type"] in ("Normal", "Warning")
        assert event["regarding"]["uid"] == "u"

    def test_their_names_are_names(self) -> None:
        long = Happening("shop", "x" * 199 + "." + "y" * 53, "u", "MemoryDrifted", "n")
        told = EventBook().decide(long, START)
        assert isinstance(told, Create)
        assert len(told.name) <= 253
        assert ".." not in told.name


class TestPoster:
    @pytest.fixture
    def server(self) -> Iterator[FakeApiServer]:
        with fake_api_server() as served:
            served.answers["/apis/events.k8s.io/v1/namespaces/shop/events"] = (201, {}, b"{}")
            yield served

    @pytest.fixture
    def poster(self, server: FakeApiServer) -> Iterator[EventPoster]:
        asked = ApiServer(Access(Cluster(server.url), User(), "a test"), silence=2)
        made = EventPoster(asked, "node-1", pause=0.2)
        made.start()
        yield made
        made.stop()

    def sent(self, server: FakeApiServer, count: int) -> list[Asked]:
        assert eventually(lambda: len(server.asked) >= count)
        return server.asked

    def test_an_event_is_sent(self, server: FakeApiServer, poster: EventPoster) -> None:
        poster.tell(happening())
        (asked,) = self.sent(server, 1)
        body: dict[str, Any] = json.loads(asked.body)
        assert asked.method == "POST"
        assert body["metadata"]["namespace"] == "shop"
        assert body["reason"] == "MemoryProtected"
        assert body["eventTime"].endswith("Z")
        assert len(body["eventTime"]) == len("2026-01-01T00:00:00.000000Z")

    def test_one_that_happens_again_is_refreshed(
        self, server: FakeApiServer, poster: EventPoster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = START
        monkeypatch.setattr("memqos.host.apiserver.events.time.time", lambda: now)
        poster.tell(happening())
        first = json.loads(self.sent(server, 1)[0].body)["metadata"]["name"]
        server.answers[f"/apis/events.k8s.io/v1/namespaces/shop/events/{first}"] = 200, {}, b"{}"
        now = START + REFRESH_SECONDS
        poster.tell(happening())
        asked = self.sent(server, 2)[1]
        assert (asked.method, asked.path.rpartition("/")[2]) == ("PATCH", first)
        assert asked.headers["Content-Type"] == "application/merge-patch+json"
        assert json.loads(asked.body)["series"]["count"] == 2

    def test_a_missing_right_is_told_once_and_not_asked_for_again_and_again(
        self, server: FakeApiServer, poster: EventPoster
    ) -> None:
        server.answers.clear()
        server.refusals = [(403, {})]
        poster.tell(happening())
        assert eventually(lambda: poster.fault is not None)
        text = str(poster.fault)
        assert "may not create events in namespace shop (403)" in text
        assert 'apiGroups: ["events.k8s.io"]' in text
        assert "verbs: [create]" in text
        for n in range(20):
            poster.tell(happening(str(n)))
        assert len(server.asked) == 1
        assert poster.dropped == 21

    def test_after_a_pause_it_is_tried_again(
        self, server: FakeApiServer, poster: EventPoster
    ) -> None:
        server.refusals = [(500, {})]
        poster.tell(happening())
        assert eventually(lambda: poster.fault is not None)
        time.sleep(0.25)
        poster.tell(happening())
        assert eventually(lambda: poster.fault is None)

    def test_telling_never_waits(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            poster = EventPoster(ApiServer(Access(Cluster(url), User(), "a test"), silence=3), "n")
            poster.start()
            began = time.monotonic()
            for n in range(1000):
                poster.tell(happening(str(n)))
            assert time.monotonic() - began < 2.5
            poster.stop()


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 5
    while not holds() and time.monotonic() < until:
        time.sleep(0.005)
    return holds()
