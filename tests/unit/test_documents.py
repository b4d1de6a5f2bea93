"""Files are cut into documents; a broken one costs itself alone and is shown where it breaks."""

import json
import subprocess
import sys
from typing import Any

import pytest
from tests.eventually import within_patience

from memqos.errors import InputError
from memqos.manifests.documents import FAULT_LIMIT, Document, read_documents
from memqos.manifests.positions import format_path, steps

POD = b"""\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: app
    resources:
      limits:
        memory: 1Gi
"""


def documents(data: bytes | str) -> list[Document]:
    found = list(read_documents(data.encode() if isinstance(data, str) else data, "f"))
    assert all(isinstance(item, Document) for item in found), [str(item) for item in found]
    return [item for item in found if isinstance(item, Document)]


def datas(data: bytes | str) -> list[dict[str, Any]]:
    return [document.data for document in documents(data)]


def data_of(data: bytes | str) -> dict[str, Any]:
    (only,) = datas(data)
    return only


def outline(data: bytes | str) -> list[Any]:
    """The data of each document, the text of each fault."""
    found = read_documents(data.encode() if isinstance(data, str) else data, "f")
    return [item.data if isinstance(item, Document) else str(item) for item in found]


def fault(data: bytes | str) -> str:
    (only,) = outline(data)
    assert isinstance(only, str), only
    return only


def test_a_document_knows_its_file_index_kind_and_name() -> None:
    first, second = documents(POD + b"---\n" + POD.replace(b"web", b"db"))
    assert (first.file, first.index, first.kind, first.name) == ("f", 0, "Pod", "web")
    assert (second.index, second.name) == (1, "db")


def test_an_object_without_kind_or_name_is_still_a_document() -> None:
    (document,) = documents("a: 1\nmetadata: [1]\nkind: 3\n")
    assert (document.kind, document.name) == ("", "")


@pytest.mark.parametrize("empty", ["", "\n\n", "# only\n  # comments", "---\n---\n", "null", "~\n"])
def test_a_file_without_a_document_is_a_fault(empty: str) -> None:
    assert fault(empty) == "f: no document – the file is empty, or has only comments"


def test_empty_documents_between_separators_are_skipped() -> None:
    assert datas("---\n---\na: 1\n---\n# none\n---\nnull\n---\nb: 2\n---\n") == [{"a": 1}, {"b": 2}]


def test_a_separator_may_carry_a_comment_or_the_document_itself() -> None:
    assert datas("--- # one\na: 1\n--- {b: 2}\n") == [{"a": 1}, {"b": 2}]


def test_dashes_inside_a_text_do_not_separate() -> None:
    assert data_of("a: |\n  ---\n  b\nc: ---x\n") == {"a": "---\nb\n", "c": "---x"}


def test_an_end_marker_ends_a_document_and_directives_start_one() -> None:
    text = "a: 1\n...\n# next\n%YAML 1.1\n# still\n---\nb: 2\n...\n---\nc: 3\n"
    assert datas(text) == [{"a": 1}, {"b": 2}, {"c": 3}]


def test_windows_line_ends_and_a_byte_order_mark_are_accepted() -> None:
    assert datas(b"\xef\xbb\xbfa: 1\r\n---\r\nb: 2\r\n") == [{"a": 1}, {"b": 2}]
    assert datas(b'\xef\xbb\xbf{"a": 1}') == [{"a": 1}]


# --- one broken document among many


def test_the_documents_around_a_broken_one_are_read() -> None:
    broken = b"a: [\n---\n"
    before, what, after = outline(POD + b"---\n" + broken + POD)
    assert before["metadata"] == after["metadata"] == {"name": "web"}
    assert what.startswith("f:13:1: a value is expected here")


def test_lines_are_counted_on_after_a_broken_document() -> None:
    *_, last = read_documents(b"a: [\n---\nb: '\n---\n" + POD, "f")
    assert isinstance(last, Document)
    assert last.position("metadata.name") == (8, 9)


def test_a_broken_line_of_json_costs_that_line() -> None:
    text = '{"a": 1}\n{"b" 2}\n{"c": 3}\noops\n{"d": 4}\n'
    assert outline(text) == [
        {"a": 1},
        "f:2:6: malformed JSON: expected ':'",
        {"c": 3},
        "f:4:1: the document is a single value, not an object"
        " – it needs apiVersion, kind and metadata",
        {"d": 4},
    ]


def test_an_object_left_open_does_not_swallow_the_next_line() -> None:
    first, second = outline('{"a": [1\n{"b": 2}\n')
    assert first.startswith("f:2:1: malformed JSON: expected ',' or ']'")
    assert second == {"b": 2}


def test_reading_stops_after_very_many_faults() -> None:
    *faults, last = outline("---\n[\n" * (FAULT_LIMIT + 5))
    assert len(faults) == FAULT_LIMIT
    assert last == f"f: {FAULT_LIMIT} faults: the rest of the file is not read"


# --- JSON


def test_json_values_may_follow_one_another_in_any_layout() -> None:
    values = [{"a": 1}, {"b": [1, {"c": "}{"}]}, {"d": "é"}]
    for glue, indent in (("", None), ("\n", None), (" ", 2), ("\n\n", 4), ("\n---\n", 2)):
        assert datas(glue.join(json.dumps(value, indent=indent) for value in values)) == values


def test_json_and_yaml_may_be_mixed_in_one_file() -> None:
    assert datas('{"a": 1}\n---\nb: 2\n---\n{"c": 3}\n# end\n{"d": 4} # there\n') == [
        {"a": 1},
        {"b": 2},
        {"c": 3},
        {"d": 4},
    ]


def test_what_only_looks_like_json_is_read_as_yaml() -> None:
    assert data_of("{a: 1, b: [x, z]}") == {"a": 1, "b": ["x", "z"]}
    assert data_of('{"a": 1, # why\n "b": yes,}') == {"a": 1, "b": True}
    assert data_of("{a: [\n{b: 1},\n{c: 2}\n]}") == {"a": [{"b": 1}, {"c": 2}]}


def test_broken_json_is_reported_as_json_and_broken_yaml_as_yaml() -> None:
    assert fault('{"a": 1 "b": 2}') == "f:1:9: malformed JSON: expected ',' or '}'"
    assert fault("{a: 1, b: [2}") == (
        "f:1:13: expected ',' or ']' – check the bracket opened in line 1"
    )


def test_json_cut_off_in_the_middle_says_so() -> None:
    end = "the JSON text ends too early – close every bracket and quote"
    assert fault('{"a": {\n  "b": 1\n') == f"f:2:9: {end}"


def test_reading_json_never_imports_yaml() -> None:
    script = """
import sys
from memqos.manifests.documents import read_documents
found = list(read_documents(b'{"a": 1}\\n{"b": 2}', "f"))
found[0].position("a")
sys.exit(len(found) != 2 or "yaml" in sys.modules)
"""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


# --- what a document may be


@pytest.mark.parametrize("text", ["- a\n- b\n", "[1, 2]", '["a"]'])
def test_a_list_is_not_a_document(text: str) -> None:
    assert fault(text) == (
        "f:1:1: the document is a list, not an object – make it the items of a List"
    )


@pytest.mark.parametrize("text", ["hello", "3", "'a: b'", "|\n text\n"])
def test_a_single_value_is_not_a_document(text: str) -> None:
    assert "f:1:1: the document is a single value, not an object" in fault(text)


def test_binary_data_is_refused_where_it_starts() -> None:
    assert fault(b"a: 1\nb: \0\n") == (
        "f:2:4: binary data: a NUL byte – give a YAML or JSON file in UTF-8"
    )
    assert fault(b'{"a": "\0"}').startswith("f:1:8: binary data")
    assert fault(b"a: \xc3\xa9\xff") == "f:1:5: not UTF-8 – save the file as UTF-8"
    assert fault(b'{"a": "\xff"}') == "f:1:8: not UTF-8 – save the file as UTF-8"
    assert fault(b"a: \x01") == "f:1:4: the character U+0001 is not allowed"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_utf_16_is_refused(encoding: str) -> None:
    assert "UTF-8" in fault("a: 1".encode(encoding))


# --- values as Kubernetes sees them


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("On", True),
        ("TRUE", True),
        ("n", False),
        ("off", False),
        ("'yes'", "yes"),
        ("tRUE", "tRUE"),
        ("", None),
        ("~", None),
        ("Null", None),
        ("''", ""),
        ("12", 12),
        ("+12", 12),
        ("-12", -12),
        ("1_000", 1000),
        ("010", 8),
        ("0o10", 8),
        ("0x1F", 31),
        ("-0b11", -3),
        ("08", 8),
        ("18446744073709551615", 2**64 - 1),
        ("100000000000000000000", 10**20),
        ("0xFFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFFF"),
        ("1e3", 1000),
        ("1.0", 1),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-.5", -0.5),
        (".5_0", ".5_0"),
        ("1e21", 1e21),
        ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
        ("1.2.3", "1.2.3"),
        ("+", "+"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("128Mi", "128Mi"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("!!int '12'", 12),
        ("!!float 3", 3),
        ("!!timestamp 2024-01-01", "2024-01-01"),
        ("!!map {b: 1}", {"b": 1}),
        ("!!seq [1]", [1]),
    ],
)
def test_a_scalar_has_the_value_kubernetes_gives_it(text: str, value: object) -> None:
    found = data_of(f"a: {text}\n")["a"]
    assert found == value
    assert type(found) is type(value)


def test_keys_become_text() -> None:
    text = "1: a\n010: b\ntrue: c\n1.5: d\n'x': e\n2024-01-01: f\n"
    assert list(data_of(text)) == ["1", "8", "true", "1.5", "x", "2024-01-01"]


@pytest.mark.parametrize("text", [".nan", "-.inf", "+.Inf"])
def test_a_number_that_json_cannot_hold_is_refused(text: str) -> None:
    assert fault(f"a: {text}") == (
        f"f:1:4: {text} is not a number that JSON can represent – put it in quotes"
    )


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("a: !!python/object/apply:os.system [ls]", "!!python/object/apply:os.system"),
        ("a: !!python/name:os.system ''", "!!python/name:os.system"),
        ("a: !!binary aGk=", "!!binary"),
        ("a: !!set {b}", "!!set"),
        ("a: !mine b", "!mine"),
        ("a: !int 3", "!int"),
    ],
)
def test_a_tag_that_is_not_plain_data_is_refused(text: str, tag: str) -> None:
    assert fault(text) == f"f:1:4: the tag '{tag}' is not allowed – remove the tag"


def test_a_value_must_fit_its_tag() -> None:
    assert fault("a: !!int x") == "f:1:4: 'x' is not of its tag '!!int' – remove the tag"


# --- keys, anchors and merges


def test_a_key_given_twice_is_refused_at_the_second() -> None:
    what = "the key 'a' is already given in line 2 – keep one of the two"
    assert fault("x:\n  a: 1\n  b: 2\n  a: 3\n") == f"f:4:3: {what}"
    assert fault('{"x": {\n  "a": 1,\n  "b": {"a": 2},\n  "a" : 3\n}}') == f"f:4:3: {what}"


def test_keys_that_become_equal_are_given_twice() -> None:
    assert "the key '1' is already given in line 1" in fault("1: a\n'1': b\n")
    assert "the key 'a' is already given in line 1" in fault('{"a": 1, "\\u0061": 2}')
    quote = '{"\\u0022": 1, "b": "\\u0022", "\\"": 2}'
    assert fault(quote).startswith("f:1:30: the key '\"' is already given in line 1")


def test_a_quote_written_as_a_number_is_no_duplicate() -> None:
    assert data_of('{"a": "\\u0022:", "b": "a"}') == {"a": '":', "b": "a"}


def test_an_alias_stands_for_its_anchor() -> None:
    inner = {"b": 1}
    assert data_of("a: &x {b: 1}\nc: *x\nd: [*x]\n") == {"a": inner, "c": inner, "d": [inner]}


def test_an_anchor_may_be_defined_again() -> None:
    assert data_of("a: &x 1\nb: *x\nc: &x 2\nd: *x\n") == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_anchors_do_not_reach_into_the_next_document() -> None:
    _, second = outline("a: &x 1\n---\nb: *x\n")
    assert second == "f:3:4: the alias 'x' has no anchor before it in this document"


def test_an_anchor_that_contains_itself_is_refused() -> None:
    assert fault("a: &x [*x]") == "f:1:8: the alias 'x' refers to itself"


def test_merges_apply_in_the_order_they_are_written() -> None:
    assert data_of("<<: {a: 1, b: 2}\na: 3\n") == {"a": 3, "b": 2}
    assert data_of("a: 3\n<<: {a: 1, b: 2}\n") == {"a": 1, "b": 2}
    assert data_of("<<: [{a: 1}, {a: 2, b: 2}]\n") == {"a": 1, "b": 2}
    assert data_of("x: &x {a: 1}\nz: {<<: *x, b: 2}\n")["z"] == {"a": 1, "b": 2}


def test_a_quoted_merge_key_is_a_key() -> None:
    assert data_of('"<<": {a: 1}\n') == {"<<": {"a": 1}}


def test_only_mappings_can_be_merged() -> None:
    assert fault("<<: [{a: 1}, 2]") == "f:1:5: << takes a mapping, or a list of mappings"


# --- input that would cost too much


def bomb(levels: int, width: int = 10) -> str:
    first = f"l0: &l0 [{', '.join(['x'] * width)}]\n"
    others = (
        f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * width)}]\n"
        for level in range(1, levels)
    )
    return first + "".join(others)


def test_an_alias_bomb_is_refused() -> None:
    assert fault(bomb(30)) == "f:6:20: aliases expand to more than 400,000 values"


def test_aliases_in_bounds_are_expanded() -> None:
    value = data_of(bomb(4))["l3"]
    for _ in range(4):
        assert len(value) == 10
        value = value[0]


def test_aliases_cannot_nest_deeper_than_brackets_can() -> None:
    chain = "".join(f"- &a{level} [*a{level - 1}]\n" for level in range(1, 200))
    assert fault(f"x:\n- &a0 [1]\n{chain}") == "f:100:9: nested more than 100 levels deep"


def nested(depth: int, opening: str, closing: str) -> str:
    return opening * depth + "1" + closing * depth


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("{a: ", "}")])
def test_nesting_is_bounded_alike_in_json_and_yaml(opening: str, closing: str) -> None:
    assert isinstance(outline(nested(100, opening, closing))[0], dict)
    assert "nested more than 100 levels deep" in fault(nested(101, opening, closing))
    assert "nested more than 100 levels deep" in fault(nested(5000, opening, closing))


TEN_MB = 10 << 20


@pytest.mark.parametrize(
    "unit", [b"[", b"{", b'{"a":', b"{a: ", b"- ", b"? ", b"a:\n ", b"[\n", b"{\n", b"---\n[\n"]
)
def test_hostile_nesting_is_refused_at_once(unit: bytes) -> None:
    with within_patience():
        found = list(read_documents(unit * (TEN_MB // len(unit)), "f"))
    assert all(isinstance(item, InputError) for item in found)


@pytest.mark.parametrize("unit", [b"---\n", b"...\n", b"#\n", b"\n", b" ", b"%\n", b"\t"])
def test_hostile_nothing_is_skipped_quickly(unit: bytes) -> None:
    with within_patience():
        assert len(list(read_documents(unit * (TEN_MB // len(unit)), "f"))) == 1


def test_a_message_never_repeats_more_than_a_few_words_of_the_file() -> None:
    for text in ("a: !" + "x" * 9999, "a: *" + "x" * 9999, f"{'k' * 999}: 1\n{'k' * 999}: 2\n"):
        assert len(fault(text)) < 200


# --- faults in plain words


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a:\n\tb: 1\n", "2:1: a tab cannot indent – indent with spaces"),
        ("a: 1\n\tb: 1\n", "2:1: a tab cannot indent – indent with spaces"),
        (
            "a: b: c\n",
            "1:5: a ':' is not expected here"
            " – check the indentation, and quote text that contains ': '",
        ),
        ("a: 'x\nb: 1\n", "1:4: this quote is never closed"),
        ("a: @x\n", "1:4: text cannot start with '@' – put it in quotes"),
        ("a:\n  b: 1\n c: 2\n", "3:2: a key is expected here – check the indentation"),
        ("- a\nb: 1\n", "2:1: a list item ('- ') is expected here – check the indentation"),
        ("a: 1\nb\nc: 2\n", "2:1: a ':' is missing after this key – check the indentation"),
        (
            'a: "\\d"\n',
            "1:5: unknown escape in double quotes – double the backslash, or use single quotes",
        ),
        ("{a: 1}\n{b: 2}\n", "2:1: text after the end of the document – put --- between documents"),
        ("? [a]\n: b\n", "1:3: a key must be text"),
        ("? \n: b\n", "1:2: a key is missing"),
        ("a: !x!y z\n", "1:4: unknown tag – remove the tag"),
        ("é: é: é", "1:5: a ':' is not expected here"),
    ],
)
def test_a_fault_says_what_where_and_what_to_do(text: str, what: str) -> None:
    assert fault(text).startswith(f"f:{what}")


@pytest.mark.parametrize(
    "text", ["a: {{ .Values.x }}\n", "{{ .Values.x }}\n", "{{- if .x }}\na: 1\n"]
)
def test_a_template_is_recognized(text: str) -> None:
    assert fault(text).endswith("this looks like a template: render it first")


# --- positions


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("", (1, 1)),
        ("kind", (2, 7)),
        ("metadata", (3, 1)),
        ("metadata.name", (4, 9)),
        ("spec.containers", (6, 3)),
        ("spec.containers[0]", (7, 5)),
        ("spec.containers[0].resources.limits[memory]", (10, 17)),
        ("$.spec.containers[0].resources.limits", (9, 7)),
        ("spec.containers[0].resources.requests[memory]", (8, 5)),
        ("spec.containers[3].name", (6, 3)),
        ("spec.resources.containers[0][cpu].limits", (5, 1)),
        ("nowhere.at.all", (1, 1)),
    ],
)
def test_a_field_is_found_or_else_the_nearest_one_around_it(
    field: str, place: tuple[int, int]
) -> None:
    (document,) = documents(POD)
    assert document.position(field) == place
    assert document.position(steps(field)) == place


JSON_POD = """\

{ "kind" : "Pod",
  "metadata": {"name": "é",  "labels": {"app.io/x": "1", "0": "z"}},
  "spec": {
    "containers": [
      {"name": "a\\"]}"}, {"name":
        "b"}
    ]
  }
}
"""


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("", (2, 1)),
        ("kind", (2, 12)),
        ("metadata.labels", (3, 30)),
        ("metadata.labels[app.io/x]", (3, 53)),
        ("metadata.labels[0]", (3, 63)),
        ("spec.containers", (5, 5)),
        ("spec.containers[1]", (6, 26)),
        ("spec.containers[1].name", (7, 9)),
        ("spec.containers[2].name", (5, 5)),
        ("spec.containers[0].name.x", (6, 16)),
    ],
)
def test_fields_are_found_in_json_too(field: str, place: tuple[int, int]) -> None:
    (document,) = documents(JSON_POD)
    assert document.position(field) == place


def test_positions_are_right_in_whatever_order_they_are_looked_up() -> None:
    document = documents('{"x": 1}\n{"a": 1,\n "b": [2,\n 3], "é": {"c": 4}}')[1]
    fields = ["b[1]", "a", "é.c", "b[0]", "a"]
    assert [document.position(field) for field in fields] == [
        (4, 2), (2, 7), (4, 17), (3, 8), (2, 7),
    ]  # fmt: skip


def test_a_field_behind_an_alias_or_a_merge_is_found_where_it_is_written() -> None:
    text = "x: &x\n  a: 1\nv: *x\nz:\n  <<: *x\n  b: 2\nw:\n  <<: [{c: 3}, *x]\n"
    (document,) = documents(text)
    found = {field: document.position(field) for field in ("v", "v.a", "z.a", "z.b", "w.c", "w.a")}
    assert found == {
        "v": (3, 4), "v.a": (2, 6), "z.a": (2, 6), "z.b": (6, 6), "w.c": (8, 12), "w.a": (2, 6),
    }  # fmt: skip


def test_a_field_without_a_value_is_shown_by_its_key() -> None:
    (document,) = documents("a:\n  b:\n  c: ''\n")
    assert document.position("a.b") == (2, 3)
    assert document.position("a.c") == (3, 6)


def test_columns_count_on_when_documents_share_a_line() -> None:
    first, second, third = documents('{"a": 1} {"b": 2} {c: {d: 3}}')
    assert first.position("a") == (1, 7)
    assert second.position("b") == (1, 16)
    assert third.position("c.d") == (1, 27)


def test_a_refusal_of_a_field_carries_its_place() -> None:
    (document,) = documents(POD)
    error = document.error("too little", "spec.containers[0].resources.limits[memory]", "more")
    assert str(error) == "f:10:17: spec.containers[0].resources.limits.memory: too little – more"
    assert str(document.error("odd")) == "f:1:1: odd"


def test_a_path_is_shown_so_that_it_can_be_read_again() -> None:
    path = ("metadata", "labels", "app.io/name", "items", 3, "x-y", 0)
    assert format_path(path) == "metadata.labels[app.io/name].items[3].x-y[0]"
    assert steps(format_path(path)) == path
