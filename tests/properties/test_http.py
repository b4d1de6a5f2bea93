"""What holds for the server whatever bytes it is sent."""

import asyncio
import gzip
import re

from hypothesis import example, given
from hypothesis import strategies as st
from tests.eventually import PATIENCE

from memqos.serve.endpoints import PLAIN, HttpReply, parse_listen_address
from memqos.serve.exposition import Family, MetricSample, exposition, labels
from memqos.serve.http import listen
from memqos.serve.http_messages import (
    BadRequest,
    encode_refusal,
    encode_reply,
    parse_request,
    route_request,
)

ROUTES = {"/healthz": lambda: HttpReply(200, PLAIN, b"ok\n" * 1000)}
LINES = st.sampled_from(
    [
        b"GET /healthz HTTP/1.1",
        b"HEAD /healthz HTTP/1.0",
        b"GET",
        b"POST / HTTP/1.1",
        b"",
        b"Host: x",
        b"Accept-Encoding: gzip",
        b"Accept-Encoding: *;q=0",
        b"Connection: close",
        b"Content-Length: 3",
        b"Content-Length: -1",
        b"Transfer-Encoding: chunked",
        b": x",
        b"x",
    ]
) | st.binary(max_size=20)
HEADS = st.lists(LINES, max_size=6).map(b"\r\n".join)
STATUS_LINE = re.compile(rb"HTTP/1\.1 [1-5][0-9][0-9] [A-Za-z ]+")


@given(HEADS)
@example(b"GET /healthz HTTP/1.1")
@example(b"HEAD /healthz HTTP/1.1\r\nAccept-Encoding: gzip")
def test_every_head_has_one_well_formed_answer(head: bytes) -> None:
    is_head = False
    try:
        request = parse_request(head)
        is_head = request.is_head
        message = encode_reply(route_request(request, bytearray(), ROUTES, {}), request)
    except BadRequest as error:
        message = encode_refusal(error)
    top, _, body = message.partition(b"\r\n\r\n")
    line, *fields = top.split(b"\r\n")
    assert STATUS_LINE.fullmatch(line)
    headers = dict(field.split(b": ", 1) for field in fields)
    assert len(headers) == len(fields)
    assert is_head or int(headers[b"Content-Length"]) == len(body)
    assert not (is_head and body)
    if b"Content-Encoding" in headers and not is_head:
        assert gzip.decompress(body) == b"ok\n" * 1000


@given(st.lists(st.binary(max_size=50) | HEADS.map(lambda head: head + b"\r\n\r\n"), max_size=4))
def test_whatever_is_sent_the_next_client_is_answered(chunks: list[bytes]) -> None:
    async def run() -> bytes:
        listener = await listen(ROUTES, "127.0.0.1", 0)
        try:
            address = parse_listen_address(listener.address)
            _, odd = await asyncio.open_connection(*address)
            for chunk in chunks:
                odd.write(chunk)
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            answer = await asyncio.wait_for(reader.read(), PATIENCE)
            odd.close()
            writer.close()
            return answer
        finally:
            await listener.close()

    assert asyncio.run(run()).startswith(b"HTTP/1.1 200 OK\r\n")


SERIES = re.compile(r'x\{pod="((?:[^"\\\n]|\\["\\n])*)"\} (\S+)')
UNESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


@given(st.text(), st.integers() | st.floats(allow_nan=False))
def test_any_label_and_any_value_read_back_as_they_were(text: str, value: float) -> None:
    data = exposition([Family("x", "gauge", "X.", [MetricSample(labels(pod=text), value)])])
    line = data.decode().split("\n", 2)[2].removesuffix("\n")
    found = SERIES.fullmatch(line)
    assert found is not None
    held = re.sub(r'\\[\\n"]', lambda escaped: UNESCAPED[escaped[0]], found[1])
    assert held == text
    assert type(value)(found[2]) == value
