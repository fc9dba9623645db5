"""The house rules, on texts made by hand: what breaks each, and what does not.
That the project keeps them is in tests/project/test_house_rules.py."""

import pytest

from tests.support.house_rules import (
    LONGEST_FUNCTION,
    WIDEST_LINE,
    docstrings_beginning,
    long_functions,
    names_given,
    parameters_and_attributes,
    wide_lines,
)


@pytest.mark.parametrize("head", ["def f():", "async def f():", "class C:\n  def f(self):"])
def test_a_function_may_have_60_lines_and_no_more(head: str) -> None:
    body = "    pass\n" * (LONGEST_FUNCTION - 1)
    assert long_functions(f"{head}\n{body}") == []
    (broken,) = long_functions(f"{head}\n{body}    pass\n")
    assert broken.endswith("f has 61 lines")


@pytest.mark.parametrize(
    "source",
    [
        "it = 1",
        "it: int = 1",
        "it, other = 1, 2",
        "for it in (): pass",
        "[it for it in ()]",
        "if (it := 1): pass",
        "with open('x') as it: pass",
        "def it(): pass",
        "def f(it): pass",
        "lambda it: 1",
        "lambda *, it: 1",
        "class C:\n    it: int",
        "x.it = 1",
        "match x:\n    case [it, *_]: pass",
        "match x:\n    case [*it]: pass",
    ],
)
def test_whatever_gives_a_name_is_seen(source: str) -> None:
    assert names_given(source, "it")
    assert names_given(source, "item") == []


@pytest.mark.parametrize("source", ["item = 1", "print('it')  # it", "x.it()", "print(it)"])
def test_a_use_a_string_and_a_longer_name_give_nothing(source: str) -> None:
    assert names_given(source, "it") == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(each): pass",
        "def f(*each): pass",
        "def f(*, each=1): pass",
        "lambda each: 1",
        "class C:\n    each: int",
        "class C:\n    each = 1",
        "class C:\n    def each(self): pass",
        "self.each = 1",
    ],
)
def test_a_parameter_and_an_attribute_are_seen(source: str) -> None:
    assert parameters_and_attributes(source, "each")


@pytest.mark.parametrize("source", ["[each for each in x]", "for each in x: pass", "each = 1", "x.each()"])
def test_a_variable_is_neither(source: str) -> None:
    assert parameters_and_attributes(source, "each") == []


@pytest.mark.parametrize(
    "source",
    [
        '"""The same."""',
        'class C:\n    """The same, as a class."""',
        'def f():\n    """The same.\n\n    More."""',
    ],
)
def test_a_docstring_that_leans_on_another_is_seen(source: str) -> None:
    assert docstrings_beginning(source, "The same")


@pytest.mark.parametrize(
    "source", ['"""Return the same."""', 'x = "The same"', '"""The samest."""', "# The same"]
)
def test_other_texts_are_no_such_docstrings(source: str) -> None:
    assert docstrings_beginning(source, "The same") == []


def test_a_page_may_have_120_columns_and_its_tables_more_where_they_may() -> None:
    wide, row = "x " * (WIDEST_LINE // 2) + "x", f"| {'x' * WIDEST_LINE} |"
    assert wide_lines("é" * WIDEST_LINE) == []
    assert wide_lines(f"a\n{wide}\n{row}\n") == ["2: 121 columns", "3: 124 columns"]
    assert wide_lines(f"a\n{wide}\n{row}\n", tables_too=False) == ["2: 121 columns"]
    assert wide_lines(f"  {'x' * WIDEST_LINE}\n") == []
