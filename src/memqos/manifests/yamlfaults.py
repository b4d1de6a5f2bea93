"""Why a text is not YAML, in plain words."""

import re
from typing import NamedTuple

import yaml
from yaml.reader import ReaderError

from memqos.errors import InputError
from memqos.manifests.positions import DocumentText, Position

TEMPLATE_HINT = "this looks like a template: render it first"


class _Wording(NamedTuple):
    what: str
    hint: str | None = None
    where_it_began: bool = False


_TAB = _Wording("a tab cannot indent", "indent with spaces")
_NEVER_CLOSED = _Wording("this quote is never closed", where_it_began=True)
_WORDINGS = {
    "block sequence entries are not allowed in this context": _Wording(
        "a list item is not expected here", "check the indentation"
    ),
    "could not find expected ':'": _Wording(
        "a ':' is missing after this key", "check the indentation", where_it_began=True
    ),
    "did not find expected <document start>": _Wording(
        "text after the end of the document", "put --- between documents"
    ),
    "did not find expected '-' indicator": _Wording(
        "a list item ('- ') is expected here", "check the indentation"
    ),
    "did not find expected key": _Wording("a key is expected here", "check the indentation"),
    "did not find expected node content": _Wording("a value is expected here"),
    "found a tab character that violates indentation": _TAB,
    "found a tab character where an indentation space is expected": _TAB,
    "found undefined tag handle": _Wording("unknown tag", "remove the tag"),
    "found unexpected document indicator": _NEVER_CLOSED,
    "found unexpected end of stream": _NEVER_CLOSED,
    "found unknown escape character": _Wording(
        "unknown escape in double quotes", "double the backslash, or use single quotes"
    ),
    "mapping values are not allowed in this context": _Wording(
        "a ':' is not expected here", "check the indentation, and quote text that contains ': '"
    ),
}
_IN_BRACKETS = ("while parsing a flow sequence", "while parsing a flow mapping")
_STRAY_CHARACTER = "found character that cannot start any token"
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def position_of(mark: yaml.Mark, text: DocumentText) -> Position:
    """Turn a mark, which counts from the start of the text, into a place in the file."""
    line, column = text.place(text.start)
    return Position(line + mark.line, (1 if mark.line else column) + mark.column)


def in_plain_words(error: yaml.YAMLError, text: DocumentText) -> InputError:
    """Turn a parser error into one with a position and, where there is one, a hint."""
    if isinstance(error, ReaderError):
        place = text.place(text.start + error.position)
        return text.error(f"the character U+{error.character:04X} is not allowed", place)
    assert isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None
    wording = _wording(error, text)
    mark = error.context_mark if wording.where_it_began else None
    return at_mark(wording.what, mark or error.problem_mark, text, wording.hint)


def at_mark(what: str, mark: yaml.Mark, text: DocumentText, hint: str | None = None) -> InputError:
    """An error at a mark; a template that was not rendered gets its own hint."""
    is_template = "{{" in _line(mark, text)
    return text.error(what, position_of(mark, text), TEMPLATE_HINT if is_template else hint)


def _wording(error: yaml.MarkedYAMLError, text: DocumentText) -> _Wording:
    problem, mark = error.problem or "malformed YAML", error.problem_mark
    if problem == _STRAY_CHARACTER and mark is not None:
        character = _line(mark, text)[mark.column : mark.column + 1]
        if character == "\t":
            return _TAB
        return _Wording(f"text cannot start with {character!r}", "put it in quotes")
    if problem in _WORDINGS:
        return _WORDINGS[problem]
    return _Wording(problem.replace("did not find expected", "expected"), _bracket(error, text))


def _bracket(error: yaml.MarkedYAMLError, text: DocumentText) -> str | None:
    if error.context_mark is None or error.context not in _IN_BRACKETS:
        return None
    return f"check the bracket opened in line {position_of(error.context_mark, text).line}"


def _line(mark: yaml.Mark, text: DocumentText) -> str:
    lines = _LINE_BREAK.split(text.data.decode("utf-8", "replace"))
    return lines[mark.line] if mark.line < len(lines) else ""
