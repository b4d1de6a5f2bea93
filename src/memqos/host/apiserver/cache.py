"""A copy of an API server's objects, kept up to date by the events of a watch.

The invariant: *the copy is all that the server had at `version`*. So
- a list replaces the copy in one step, and only when all of its pages have arrived;
- an event is applied in full, together with its version, or not at all: a line that broke off, or
  that cannot be decoded, changes nothing;
- a watch is resumed only from `version`, as everything before it is in the copy and nothing after
  it is;
- where the server cannot resume from there (the version has expired, or the watch ended in an error
  that is not temporary), `version` is dropped and a list follows, not older than `newest_version`,
  so that the copy never goes back in time;
- where events would make the copy larger than its bound, they are an error, and a list follows.
Versions are opaque: they are only compared for equality.
"""

from collections.abc import Iterable
from typing import Final, Generic, Literal, Protocol, TypeVar

import msgspec

from memqos.errors import InputError
from memqos.host.apiserver.api_errors import BUSY, GONE, ApiStatus
from memqos.host.apiserver.responses import decoded_size, short_error
from memqos.kube.pod import ObjectMeta
from memqos.units import format_bytes

CacheChange = Literal["changed", "nothing", "expired"]
ObjectKey = tuple[str, str]
"""Namespace and name, by which the server stores objects."""


class HasMetadata(Protocol):
    """An object that can be cached."""

    @property
    def metadata(self) -> ObjectMeta: ...


_T = TypeVar("_T", bound=HasMetadata)


class WatchInterrupted(Exception):
    """The server ended the watch with an error; where `version` stays, it can be resumed."""

    def __init__(self, status: ApiStatus) -> None:
        super().__init__(status.message)
        self.status = status


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Meta


_event: Final = msgspec.json.Decoder(_Event)
_versioned: Final = msgspec.json.Decoder(_Versioned)
_status: Final = msgspec.json.Decoder(ApiStatus)


class ObjectCache(Generic[_T]):
    """The copy and its version, without threads, clocks or sockets."""

    def __init__(self, type: type[_T], largest: int) -> None:
        """`largest` bounds list and events together, in bytes as they are decoded."""
        self.objects: dict[ObjectKey, _T] = {}
        self.version: str | None = None
        """Where a watch resumes; None where a list has to come first."""
        self.newest_version = ""
        """The newest version observed; empty before the first list."""
        self._decoder = msgspec.json.Decoder(type)
        self._largest = largest
        self._sizes: dict[ObjectKey, int] = {}
        """Bytes of each object in the copy, fields that memqos does not decode excluded."""
        self._size = 0
        """Bytes of all of them."""

    def replace(self, objects: Iterable[_T], version: str) -> bool:
        """Replace the copy by a list; whether the copy changed."""
        listed = {_key(each): each for each in objects}
        sizes = {key: _size(each) for key, each in listed.items()}
        if sum(sizes.values()) > self._largest:
            raise self._too_large("a list")
        before, self.objects, self._sizes = self.objects, listed, sizes
        self._size = sum(sizes.values())
        self.version = self.newest_version = version
        return before != self.objects

    def forget_version(self) -> None:
        """Require a list before the next watch; the copy stays until it arrives."""
        self.version = None

    def apply(self, line: bytes) -> CacheChange:
        """Apply one line of a watch."""
        if decoded_size(line) > self._largest:
            raise self._too_large("an event of a watch")
        try:
            event = _event.decode(line)
            if event.type == "ERROR":
                return self._apply_error(_status.decode(event.object))
            version = _versioned.decode(event.object).metadata.resource_version
            change: CacheChange = "nothing"
            if event.type != "BOOKMARK":
                item = self._decoder.decode(event.object)
                change = self._apply_event(event.type, item)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"a watch event cannot be read ({short_error(error)})") from None
        self.version = self.newest_version = version
        return change

    def _apply_event(self, type: str, item: _T) -> CacheChange:
        key = _key(item)
        before = self._sizes.get(key, 0)
        if type == "DELETED":
            self._size -= before
            self._sizes.pop(key, None)
            return "changed" if self.objects.pop(key, None) is not None else "nothing"
        if type not in ("ADDED", "MODIFIED"):
            raise InputError("a watch event has an unknown type")
        # Most events change fields that memqos does not decode.
        if self.objects.get(key) == item:
            return "nothing"
        size = _size(item)
        if self._size - before + size > self._largest:
            raise self._too_large("a watch event")
        self._size += size - before
        self.objects[key], self._sizes[key] = item, size
        return "changed"

    def _too_large(self, what: str) -> InputError:
        """A list follows, which may be shorter."""
        self.forget_version()
        return InputError(
            f"{what} would take more than {format_bytes(self._largest)} of memory in all",
            hint="is this the address of an API server?",
        )

    def _apply_error(self, status: ApiStatus) -> CacheChange:
        if status.code in BUSY:
            raise WatchInterrupted(status)
        # A version that etcd has compacted ends a watch that began with 200: as an ERROR event with
        # a Status of 410, reason Expired, or Gone from older servers (client-go apierrors).
        if status.code != GONE and status.reason not in ("Expired", "Gone"):
            self.forget_version()
            raise WatchInterrupted(status)
        self.forget_version()
        return "expired"


def _size(item: object) -> int:
    return decoded_size(msgspec.json.encode(item))


def _key(item: HasMetadata) -> ObjectKey:
    return item.metadata.namespace or "", item.metadata.name or ""
