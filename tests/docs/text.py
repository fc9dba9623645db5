"""Prose of a page: one sentence a line, and no line wider than the house rules allow."""

import re
import textwrap

from tests.support.house_rules import WIDEST_LINE

_END = re.compile(r"(?<=[.:]) (?=[A-Z][A-Za-z]*: )|(?<=[.!?]) (?=[A-Z`])")
_CODE = re.compile(r"`[^`]*`")
_KEPT = "\0"  # in place of a space at which no line may end


def split(text: str) -> list[str]:
    """Return the sentences of a text."""
    return _END.split(" ".join(text.split()))


def sentences(text: str, indent: str = "") -> str:
    """Return the text with a line for each sentence; one that is too long goes on in the next line."""
    return "\n".join(line for sentence in split(text) for line in _wrapped(sentence, indent))


def item(text: str, indent: str = "") -> str:
    """Return the text as one item of a list, with its line end."""
    return f"{indent}- {sentences(text, indent + '  ').lstrip()}\n"


def _wrapped(sentence: str, indent: str) -> list[str]:
    lines = textwrap.wrap(
        _CODE.sub(lambda code: code[0].replace(" ", _KEPT), sentence),
        WIDEST_LINE,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_KEPT, " ") for line in lines]
