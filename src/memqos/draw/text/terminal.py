"""Text that a terminal shows, and does not obey."""

from typing import Final

from memqos.errors import MemqosError

_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str, keep: str = "") -> str:
    """A text in which nothing moves the cursor, is invisible or changes the direction of writing.

    Control characters, C1 as well, format characters such as bidi overrides, and line separators
    become the escapes that JSON and YAML have for them in double quotes: within such quotes the
    text still says the same. A line by itself has no newline; `keep` lets some pass.
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in keep else _escape(c) for c in text])


def message_lines(message: object, before: str = "") -> list[str]:
    """A message as one line, whatever it quotes, and the lines of its snippet to copy."""
    if not isinstance(message, MemqosError):
        return [visible(f"{before}{message}")]
    return [visible(f"{before}{message.sentence}"), *map(visible, message.snippet)]


def visible_lines(text: str) -> str:
    """The same of a text of many lines; tabs pass, too."""
    return "\n".join([visible(line, "\t") for line in text.split("\n")])


def escape_beyond_ascii(text: str) -> str:
    """The same for a terminal that has no more: within double quotes the text says the same."""
    return text if text.isascii() else "".join([c if c.isascii() else _escape(c) for c in text])


def _escape(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join([rf"\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)])
