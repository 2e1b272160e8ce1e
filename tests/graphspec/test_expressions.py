"""Expressions of variables: Python's own numbers, errors at the exact characters, and nothing that Python evaluates."""

from __future__ import annotations

import ast
import math
import random
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphspec.diagnostics import SpecError
from graphspec.read.arithmetic import FUNCTIONS, evaluate
from graphspec.read.expressions import DEEPEST, LONGEST, NUMBERS, Call, ExpressionError, find_names, read_expression
from graphspec.read.interpolation import interpolate
from graphspec.read.overrides import override
from graphspec.read.source import read_document

VALUES = {"a": 3, "b": 0.5, "temperature": 4, "width": 64}


def fill(text, overrides=()):
    return interpolate(override(read_document(text, name="g.yaml"), overrides)).data["vars"]


def find_problem(text):
    """Return the only problem of a document: its code, message, and the characters it points at."""
    with pytest.raises(SpecError) as raised:
        fill(text)
    (found,) = raised.value.diagnostics
    line = text.splitlines()[found.span.line - 1]
    return found.code, found.message, line[found.span.column - 1 : found.span.end_column - 1]


def by_python(text):
    """Return what Python makes of an expression, with the same names."""
    functions = {"abs": abs, "max": max, "min": min}
    functions |= {name: getattr(math, name) for name in ("ceil", "cos", "exp", "floor", "log", "sin", "sqrt", "pi")}
    return eval(text, {"__builtins__": {}}, {**functions, **VALUES})


@pytest.mark.parametrize(
    "text",
    [
        "0.7 * temperature**2",
        "1 - b",
        "-a ** 2",
        "2 ** -1",
        "width // 3 * 2 % 5",
        "width / 2",
        "  ( a + b ) * ( a - b )  ",
        "max(a, b, 2) + min(a, 1.5) - abs(-a)",
        "sqrt(2 * pi) * exp(-a) + log(width) + sin(a) * cos(b) + ceil(b) + floor(2.5)",
        "+a",
        "1e-3 + 10_000",
        "a\n+ b",
        "a # a comment",
    ],
)
def test_an_expression_has_the_value_that_python_gives_it(text):
    found, meant = evaluate(read_expression(text, NUMBERS), VALUES), by_python(" ".join(text.split("#")[0].split()))
    assert (found, type(found)) == (meant, type(meant))


TREES = st.recursive(
    st.sampled_from(["a", "b", "width", "2", "0.25", "pi"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
            lambda each: f"({' '.join(each)})"
        )
        | inner.map(lambda each: f"-{each}")
        | inner.map(lambda each: f"abs({each})")
        | st.tuples(inner, inner).map(lambda each: f"max({each[0]}, {each[1]})")
    ),
    max_leaves=12,
)


@given(TREES)
def test_random_expressions_have_the_values_that_python_gives_them(text):
    try:
        meant = by_python(text)
    except ZeroDivisionError:
        with pytest.raises(ExpressionError, match="divides by zero"):
            evaluate(read_expression(text, NUMBERS), VALUES)
        return
    found = evaluate(read_expression(text, NUMBERS), VALUES)
    assert (found, type(found)) == (meant, type(meant))


def test_what_follows_from_a_variable_moves_with_an_override_of_it():
    text = 'vars: {t: 2, soft: "${= 0.7 * t**2}", twice: "${= 2 * soft}", name: "w${= t + 1}", list: ["${=t}"]}\n'
    assert fill(text) == {"t": 2, "soft": 0.7 * 4, "twice": 2 * 0.7 * 4, "name": "w3", "list": [2]}
    assert fill(text, ["vars.t=3"])["twice"] == 2 * (0.7 * 9)
    assert fill(text, ['vars.soft="${= t - 1}"'])["twice"] == 2


@pytest.mark.parametrize(
    ("text", "code", "message", "pointed"),
    [
        ("${= 2 * tt}", "GS030", "there is no variable 'tt'", "tt"),
        ("${= 1 + sqrt}", "GS030", "there is no variable 'sqrt'", "sqrt"),
        ("${= (1 + }", "GS039", "this `(` is not closed", "("),
        ("${= }", "GS039", "the expression is empty", " "),
        ("${= t ^ 2}", "GS039", "an expression has no `^`", "^"),
        ("${= math.sqrt(t)}", "GS039", "functions are called without a module", "math.sqrt"),
        ("${= 1 + word}", "GS039", "variable 'word' is the string 'x', and not a number", "word"),
        ("${= flag}", "GS039", "variable 'flag' is true, and not a number", "flag"),
        ("${= 1 / (t - 2)}", "GS039", "this divides by zero", "1 / (t - 2)"),
        ("${= 1 % 0}", "GS039", "this divides by zero", "1 % 0"),
        ("${= 3 ** 60}", "GS039", "this is a whole number of more than 64 bits", "3 ** 60"),
        ("${= 9**9**9**9}", "GS039", "this is a whole number of more than 64 bits", "9**9**9"),
        ("${= 10.0 ** 400}", "GS039", "this is too large a number", "10.0 ** 400"),
        ("${= 1e308 * 10}", "GS039", "this is not a finite number", "1e308 * 10"),
        ("${= (-8) ** 0.5}", "GS039", "this power is not a real number", "(-8) ** 0.5"),
        ("${= log(0)}", "GS039", "'log' has no value there", "log(0)"),
        ("${= max(1)}", "GS039", "'max' takes several numbers", "max(1)"),
        ("${= sqrt(1, 2)}", "GS039", "'sqrt' takes one number", "sqrt(1, 2)"),
        ("${= tanh(1)}", "GS039", "there is no function 'tanh' of numbers", "tanh"),
        ("${= t.real}", "GS039", "an expression has numbers, variables, + - * / // % **, and calls: no dot", "t.real"),
        (
            "${= t < 1}",
            "GS039",
            "an expression has numbers, variables, + - * / // % **, and calls: no comparison",
            "t < 1",
        ),
    ],
)
def test_a_problem_is_told_with_the_characters_that_are_meant(text, code, message, pointed):
    document = f'vars:\n  t: 2\n  word: x\n  flag: true\n  y: "{text}"\n'
    assert find_problem(document) == (code, message, pointed)


def test_elsewhere_there_are_no_expressions():
    assert find_problem('vars: {t: 2}\nuse: "${= 2 * t}"\n')[0] == "GS032"


def test_variables_that_need_each_other_in_expressions_are_a_circle():
    assert find_problem('vars: {a: "${= 2 * b}", b: "${= a + 1}"}\n')[:2] == (
        "GS031",
        "variables need each other: a -> b -> a",
    )


@pytest.mark.parametrize(
    "text", ["1 + " * 600 + "1", "-" * 1500 + "1", "(" * 250 + "1" + ")" * 250, "9" * (LONGEST + 1)]
)
def test_limits_hold(text):
    with pytest.raises(ExpressionError):
        evaluate(read_expression(text, NUMBERS), {})


def test_nothing_is_lost_within_the_limits():
    assert evaluate(read_expression("+".join(["1"] * DEEPEST), NUMBERS), {}) == DEEPEST


LETTERS = [
    "a",
    "b",
    "1",
    "2.5",
    "pi",
    "max",
    "(",
    ")",
    ",",
    "+",
    "-",
    "*",
    "**",
    "/",
    "//",
    "%",
    " ",
    "\n",
    ".",
    "[",
    "]",
]
LETTERS += [
    "__import__",
    "lambda",
    ":",
    "=",
    "'",
    '"',
    "{",
    "}",
    "!",
    "#",
    "\\",
    "é",
    "\u2028",
    "if",
    "else",
    "@",
    "~",
    "1j",
]


def read_and_evaluate(text):
    """Return whether a text can be read; errors point into it."""
    try:
        tree = read_expression(text, NUMBERS)
        evaluate(tree, {each.name: 2 for each in find_names(tree)})
    except ExpressionError as error:
        return 0 <= error.start <= error.end <= len(text) and "read"
    return "evaluated"


@pytest.mark.parametrize("part", range(4))
def test_random_strings_are_read_or_refused_and_python_runs_none_of_them(part, audited):
    rng = random.Random(part)
    texts = ["".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 14))) for _ in range(5_000)]
    audited.clear()
    found = Counter(read_and_evaluate(text) for text in texts)
    ran = [event for event in audited if event in ("exec", "import", "open", "os.system")]
    assert (found[False], ran) == (0, [])
    assert found["evaluated"] > 100


@pytest.fixture(scope="module")
def audited():
    """Return the events that Python raises where it runs code; a hook can never be removed, so it stops recording."""
    events, is_on = [], [True]
    sys.addaudithook(lambda event, given: events.append(event) if is_on[0] else None)
    yield events
    is_on[0] = False


def test_the_list_of_nodes_is_closed():
    calls = {each for each in FUNCTIONS if isinstance(read_expression(f"{each}(1)", NUMBERS), Call)}
    assert calls == FUNCTIONS.keys()
    refused = {each.__name__ for each in ast.operator.__subclasses__()} - {each.__name__ for each in NUMBERS.operators}
    assert refused == {"MatMult", "LShift", "RShift", "BitOr", "BitXor", "BitAnd"}
