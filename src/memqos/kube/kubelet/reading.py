"""Read a kubelet's configuration as the kubelet does: decode, default, validate, start."""

from typing import Final

import msgspec

from memqos.errors import InputError, nearest_name
from memqos.kube.kubelet import FaultStage, KubeletConfiguration, KubeletFault, with_defaults
from memqos.kube.kubelet.decoding import KINDS, SINCE, decode_kubelet
from memqos.kube.kubelet.validation import (
    CheckProfile,
    gate_faults,
    start_faults,
    validation_faults,
)
from memqos.release import Release


class Note(msgspec.Struct, frozen=True):
    """Something that does not stop the kubelet, but that its administrator should know."""

    field: str
    what: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.what}" + (f" – {self.hint}" if self.hint else "")


IGNORED: Final = "ignored by Kubernetes"
"""The note on a field that a release does not have."""


class KubeletSettings(msgspec.Struct, frozen=True):
    """A valid configuration, and the release with the gates it sets."""

    config: KubeletConfiguration
    release: Release
    notes: tuple[Note, ...] = ()


class Reading(msgspec.Struct, frozen=True):
    """The result. There is no configuration where it could not be decoded."""

    config: KubeletConfiguration | None
    release: Release
    faults: tuple[KubeletFault, ...] = ()
    unknown: tuple[str, ...] = ()
    """Fields the release does not have, and ignores."""
    notes: tuple[Note, ...] = ()

    @property
    def refused_at(self) -> FaultStage | None:
        return self.faults[0].stage if self.faults else None


def read_kubelet(data: object, release: Release, profile: CheckProfile = "kubelet") -> Reading:
    """Read a document, or any part of one, as a kubelet of that release would."""
    decoded = decode_kubelet(data, release.minor)
    notes = [_unknown(field, release) for field in decoded.unknown]
    if decoded.faults:
        return Reading(None, release, decoded.faults, decoded.unknown, tuple(notes))
    config = with_defaults(decoded.written, release.minor)
    if profile == "memqos" and config.memory_reservation_policy == "Disabled":
        config = msgspec.structs.replace(config, memory_reservation_policy="None")
        notes.append(Note("memoryReservationPolicy", "Disabled is read as None", "write None"))
    faults = gate_faults(config, release)
    if not faults:
        release = release.with_gates(config.feature_gates)
        faults = validation_faults(config, release, profile) or start_faults(config, release)
    undecodable = any(fault.stage == "decode" for fault in faults)
    return Reading(
        None if undecodable else config, release, tuple(faults), decoded.unknown, tuple(notes)
    )


def kubelet_from(
    data: object, release: Release, *, profile: CheckProfile = "memqos", file: str | None = None
) -> KubeletSettings:
    """The configuration in a document; one that no kubelet would run with is refused."""
    reading = read_kubelet(data, release, profile)
    if reading.config is None or reading.faults:
        first, *others = reading.faults
        more = f" (and {len(others)} more)" if others else ""
        raise InputError(first.what + more, file=file, field=first.field or None, hint=first.hint)
    return KubeletSettings(reading.config, reading.release, reading.notes)


def _unknown(field: str, release: Release) -> Note:
    if field in SINCE:
        return Note(field, f"{IGNORED} {release}", f"it exists since 1.{SINCE[field]}")
    near = nearest_name(field, KINDS) if "." not in field else None
    hint = f"did you mean {near}?" if near is not None else None
    return Note(field, "ignored: there is no such field", hint)
