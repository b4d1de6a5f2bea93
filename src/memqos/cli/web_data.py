"""What the page of `memqos web` asks for: rows, a container in full, stories, status, an audit."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from memqos.cli.cluster_access import LiveCluster
from memqos.converge.cluster_nodes import ClusterNodes
from memqos.converge.refresher import Refresher
from memqos.draw.html.style import PAGE_STYLE
from memqos.draw.text.row_detail import instant_data, row_data
from memqos.draw.text.status import status_data, status_facts
from memqos.errors import InputError, MemqosError
from memqos.monitor.instant import SORT_KEYS, NodeInstant, RowQuery, SortKey, select_rows
from memqos.monitor.status import node_status
from memqos.record.chapters import Story
from memqos.record.format import LevelRecord, WriteRecord
from memqos.record.recordings import Recording, latest_recordings
from memqos.record.story import story_of
from memqos.serve.web_page import DataRoutes, UrlQuery
from memqos.units import pluralize

if TYPE_CHECKING:
    from memqos.cli.audit_run import AuditRequest

_MOST_ROWS: Final = 500
_MOST_NAMES: Final = 100
_PATIENCE: Final = 2.0
"""Seconds to wait for a new reading after a time in which nobody looked."""
_AUDIT_PATIENCE: Final = 1.0
"""Seconds to wait for the audit: until it is done, the page asks again."""
_BY_EVENTS: Final = RowQuery(sort="high")
_PAGE: Final = (
    "index.html",
    "app.js",
    "bar.js",
    "client.js",
    "cluster.js",
    "elements.js",
    "node.js",
    "rows.js",
    "story.js",
)


def page_files() -> dict[str, bytes]:
    """Path → content of all that the page is made of."""
    folder = files("memqos.serve") / "page"
    found = {f"/{name}": (folder / name).read_bytes() for name in _PAGE}
    style = PAGE_STYLE.encode() + (folder / "style.css").read_bytes()
    return found | {"/style.css": style}


class WebData:
    """Answers the page, out of what the refresher has read."""

    def __init__(
        self, refresher: Refresher, audit: "AuditRequest | None", context: str | None
    ) -> None:
        self._refresher = refresher
        self._audit = audit
        self._context = context
        self._audit_lock = threading.Lock()
        self._audit_page: Future[str] | None = None

    @property
    def routes(self) -> DataRoutes:
        """Path → what is answered."""
        return {
            "/api/views": self._views,
            "/api/node": self._node,
            "/api/container": self._container,
            "/api/story": self._story,
            "/api/status": self._status,
            "/api/cluster": self._cluster,
            "/api/audit": self._audit_report,
        }

    @property
    def _is_cluster(self) -> bool:
        return isinstance(self._refresher.source, ClusterNodes)

    def _views(self, _: UrlQuery) -> Any:
        views = ["node", "status"]
        views += ["cluster"] if self._is_cluster else []
        return {"views": views + (["audit"] if self._audit is not None else [])}

    def _node(self, query: UrlQuery) -> Any:
        sort = query.get("sort", "usage")
        if sort not in SORT_KEYS:
            raise InputError(f"rows cannot be ordered by {sort!r}")
        selection = RowQuery(
            sort=cast(SortKey, sort),
            reverse=query.get("reverse") == "true",
            text=query.get("filter", ""),
        )
        first, count = _number(query, "first", 0), _number(query, "count", 60)
        # Twice: once to know which rows are shown, of which all is read from now on.
        shown = select_rows(self._refresher.instant, selection)[first : first + count]
        visible = frozenset(row.path for row in shown)
        instant = self._with_fault(self._refresher.latest(visible, selection, _PATIENCE))
        rows = select_rows(instant, selection)
        data = instant_data(instant, rows[first : first + min(count, _MOST_ROWS)], why=False)
        throttled = instant.throttled
        return data | {
            "first": first,
            "matched": len(rows),
            "total": len(instant.rows),
            "throttled": None if throttled is None else len(throttled),
        }

    def _container(self, query: UrlQuery) -> Any:
        instant = self._instant()
        path, node = query.get("path", ""), query.get("node", "")
        for row in instant.rows:
            if row.path == path and row.node == node:
                return {"container": row_data(row, instant)}
        raise InputError("this container no longer runs")

    def _story(self, query: UrlQuery) -> Any:
        pod = query.get("pod", "")
        recordings = self._recordings(pod)
        node = next((each for each in recordings if each.who.is_node), None)
        named = [each for each in recordings if f"{each.who.namespace}/{each.who.pod}" == pod]
        return {
            "pod": pod,
            "containers": [
                _story_data(each, story_of(each, node)) for each in latest_recordings(named)
            ],
        }

    def _status(self, _: UrlQuery) -> Any:
        instant = self._instant()
        try:
            status = node_status(instant, self._recordings())
        except MemqosError as error:
            status = node_status(instant, notes=[f"the records are not known: {error}"])
        return status_data(status) | {"facts": list(status_facts(status))}

    def _cluster(self, _: UrlQuery) -> Any:
        if not self._is_cluster:
            raise InputError("this page shows one node: memqos web --context NAME shows a cluster")
        instant = self._instant()
        return {
            "origin": instant.origin,
            "at": instant.at,
            "notes": instant.notes,
            "nodes": [
                msgspec.to_builtins(node)
                | {"unmanaged": len(node.unmanaged), "changes": len(node.changes)}
                for node in instant.nodes
            ],
            "lists": [
                {"title": title, "names": names[:_MOST_NAMES], "more": len(names[_MOST_NAMES:])}
                for title, names in _cluster_lists(instant)
            ],
        }

    def _audit_report(self, _: UrlQuery) -> Any:
        if self._audit is None:
            raise InputError("there is no audit: give --audit DUMP, or --audit cluster")
        with self._audit_lock:
            if self._audit_page is None:
                # Not one of the server's threads: of a large cluster it takes minutes.
                self._audit_page = Future()
                arguments = self._audit, self._context, self._audit_page
                threading.Thread(target=_make_audit, args=arguments, daemon=True).start()
            page = self._audit_page
        if not wait([page], _AUDIT_PATIENCE).done:
            return {"html": None}
        if page.exception() is not None:
            self._audit_page = None
        return {"html": page.result()}

    def _instant(self) -> NodeInstant:
        return self._with_fault(self._refresher.latest((), _BY_EVENTS, _PATIENCE))

    def _with_fault(self, instant: NodeInstant) -> NodeInstant:
        """The instant, with a note where it could not be read again."""
        fault = self._refresher.fault
        if fault is None:
            return instant
        return msgspec.structs.replace(instant, notes=(*instant.notes, fault))

    def _recordings(self, pod: str | None = None) -> list[Recording]:
        try:
            return list(self._refresher.source.recordings(pod))
        except PermissionError as error:
            raise InputError(
                "the records cannot be read", file=error.filename, hint="run as root"
            ) from None


def _make_audit(request: "AuditRequest", context: str | None, page: Future[str]) -> None:
    from memqos import __version__
    from memqos.cli.audit_run import run_audit
    from memqos.cli.settings import SettingsArguments
    from memqos.draw.html.audit import audit_main

    try:
        report, _pods = run_audit(request, SettingsArguments(), LiveCluster(context))
        page.set_result(str(audit_main(report, at=datetime.now(UTC), version=__version__)))
    except Exception as error:
        page.set_exception(error)


def _cluster_lists(instant: NodeInstant) -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """Who is throttled, killed, not managed, and what others changed; each by its name."""
    yield (
        "Throttled",
        [
            _entry(
                row.node, row.pod, f"{row.container}: {row.high_events:.1f} high events a second"
            )
            for row in instant.throttled or ()
        ],
    )
    yield (
        "Killed by the kernel",
        [
            _entry(
                row.node,
                row.pod,
                f"{row.container}: {pluralize(row.kills, 'process', 'processes')}",
            )
            for row in sorted(instant.rows, key=lambda row: -row.kills)
            if row.kills
        ],
    )
    yield (
        "Not managed",
        [_entry(node.name, pod, "") for node in instant.nodes for pod in node.unmanaged],
    )
    yield (
        "Changed by others",
        [
            _entry(node.name, change.pod, change.words)
            for node in instant.nodes
            for change in node.changes
        ],
    )


def _entry(node: str, pod: str, words: str) -> Mapping[str, str]:
    return {"node": node, "pod": pod, "words": words}


def _story_data(recording: Recording, story: Story) -> Mapping[str, Any]:
    """A story with times as numbers, the levels, and what set each of them."""
    records = sorted(recording.records, key=lambda record: record.at)
    data: dict[str, Any] = msgspec.to_builtins(story, enc_hook=str)
    return data | {
        "pod": f"{story.namespace}/{story.pod}",
        "points": [
            {
                "at": each.at,
                "current": each.current,
                "min": each.min,
                "low": each.low,
                "high": each.high,
                "max": each.max,
            }
            for each in records
            if isinstance(each, LevelRecord)
        ],
        "writes": [
            {
                "at": each.at,
                "file": each.file,
                "new": each.new,
                "rule": each.rule,
                "says": each.says,
                "by": each.by,
            }
            for each in records
            if isinstance(each, WriteRecord)
        ],
    }


def _number(query: UrlQuery, name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"{name} is not a number")
    return int(text)
