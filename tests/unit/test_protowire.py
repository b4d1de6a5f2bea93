"""Messages as Google's own library would write and read them."""

import pytest
from tests.fakes.cri_messages import message

from memqos.host import cri
from memqos.host.protowire import (
    MalformedMessage,
    Message,
    ProtoField,
    decode_message,
    encode_message,
)

UPDATE = {
    "container_id": "abc",
    "linux": {
        "memory_limit_in_bytes": -1,
        "cpuset_mems": "0-1",
        "unified": {"memory.low": "4096", "memory.high": "max", "ß": "ü" * 200},
    },
}


def test_what_is_written_is_read_by_others() -> None:
    read = message("UpdateContainerResourcesRequest")()
    read.ParseFromString(encode_message(cri.UPDATE_REQUEST, UPDATE))
    assert read.container_id == "abc"
    assert read.linux.memory_limit_in_bytes == -1
    assert read.linux.cpuset_mems == "0-1"
    assert dict(read.linux.unified) == UPDATE["linux"]["unified"]  # type: ignore[index]


def test_what_others_write_is_read_and_unknown_fields_are_skipped() -> None:
    written = message("ContainerStatusResponse")()
    written.status.id = "abc"
    written.status.created_at = 1 << 60
    written.status.resources.linux.cpu_period = 100_000
    written.status.resources.linux.memory_limit_in_bytes = -5
    written.status.resources.linux.unified["memory.low"] = "8192"
    written.info["info"] = "{}"
    assert decode_message(cri.STATUS_RESPONSE, written.SerializeToString()) == {
        "status": {
            "id": "abc",
            "resources": {
                "linux": {"memory_limit_in_bytes": -5, "unified": {"memory.low": "8192"}}
            },
        },
        "info": {"info": "{}"},
    }


def test_fields_of_fixed_size_are_skipped_too() -> None:
    data = (
        b"\x09"
        + b"\1" * 8
        + b"\x15"
        + b"\2" * 4
        + encode_message({"id": ProtoField(3, "text")}, {"id": "x"})
    )
    assert decode_message({"id": ProtoField(3, "text")}, data) == {"id": "x"}


def test_lists_keep_their_order() -> None:
    shape: Message = {"command": ProtoField(3, "texts"), "verbose": ProtoField(4, "flag")}
    values = {"command": ["sh", "-c", "true"], "verbose": True}
    assert decode_message(shape, encode_message(shape, values)) == values


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05ab", b"\x80" * 11, b"\x0b", b"\x08\x01", b"\x12\x01x\xff"],
    ids=["no length", "too short", "endless number", "group", "number for text", "torn"],
)
def test_what_is_no_message_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_message({"id": ProtoField(1, "text")}, data)
