"""Expressions in ops: the ops that they are made of, carets inside the text, and nothing that Python evaluates."""

from __future__ import annotations

import ast
import math
import random
import re

import pytest

from graphspec import SpecError, dump, load
from graphspec.expand.formulas import OPERATORS, SIGNS
from graphspec.read.expressions import LONGEST, VALUES, ExpressionError, read_expression

HEAD = """graphspec: 1
name: formulas
vars: {tau: 0.5, n: 2, word: other, far: "${= 2 * tau}"}
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 4]}, other: {shape: [batch, 4]}}
models: {net: {layers: [{linear: 4}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
"""


def read(ops):
    return load(f"{HEAD}{ops}")


def show(spec):
    """Return the ops of a spec without the mark of their expression, and with the numbers of parts as `p1`."""
    shown = {name: op.model_dump(exclude={"expr", "doc"}) for name, op in spec.ops.items()}
    return re.sub(r"\.p?(\d+)'", r".p\1'", repr(sorted(shown.items())))


def find_problems(ops):
    """Return the problems of a spec: code, message, and the characters that the caret marks."""
    text = f"{HEAD}{ops}"
    with pytest.raises(SpecError) as raised:
        load(text)
    lines = text.splitlines()
    spans = [(each, each.span) for each in raised.value.diagnostics]
    return [(each.code, each.message, lines[at.line - 1][at.column - 1 : at.end_column - 1]) for each, at in spans]


CASES = {
    'a: {expr: "x + y * 2"}': "a.p1: {call: mul, inputs: [y, 2]}\n  a: {call: add, inputs: [x, a.p1]}",
    'a: {expr: "(x + y) * 2 / other"}': """a.p1: {call: add, inputs: [x, y]}
  a.p2: {call: mul, inputs: [a.p1, 2]}
  a: {call: div, inputs: [a.p2, other]}""",
    'a: {expr: "x + y + other + 1"}': "a: {call: add, inputs: [x, y, other, 1]}",
    'a: {expr: "x - y - other"}': "a.p1: {call: sub, inputs: [x, y]}\n  a: {call: sub, inputs: [a.p1, other]}",
    'a: {expr: "x - (y + -x)"}': """a.p1: {call: neg, inputs: x}
  a.p2: {call: add, inputs: [y, a.p1]}
  a: {call: sub, inputs: [x, a.p2]}""",
    'a: {expr: "-0.5 * x"}': "a: {call: mul, inputs: [-0.5, x]}",
    'a: {expr: "x - log(2 * pi) / 2"}': f"a: {{call: sub, inputs: [x, {math.log(2 * math.pi) / 2!r}]}}",
    'a: {expr: "(1 - ${tau}) * x + 2**-${n} * y"}': """a.p1: {call: mul, inputs: [0.5, x]}
  a.p2: {call: mul, inputs: [0.25, y]}
  a: {call: add, inputs: [a.p1, a.p2]}""",
    'a: {expr: "max(1, ${far}, 3) * x"}': "a: {call: mul, inputs: [3, x]}",
    'a: {expr: "x * ${word}"}': "a: {call: mul, inputs: [x, other]}",
    'a: {expr: "mean(x, axis=[0, -1], keepdims=True)"}': (
        "a: {call: mean, inputs: x, args: {axis: [0, -1], keepdims: true}}"
    ),
    'a: {expr: "split(x, sections=${n}, axis=1)", outputs: [left, right]}': (
        "a: {call: split, inputs: x, args: {sections: 2, axis: 1}, outputs: [left, right]}"
    ),
    'a: {expr: "reshape(x, shape=[batch, 2, -1])"}': "a: {call: reshape, inputs: x, args: {shape: [batch, 2, -1]}}",
    "a: {expr: \"mse(out, y, reduction='none') * x\", mode: eval, every: 2}": """\
a.p1: {loss: mse, inputs: [out, y], reduction: none, mode: eval}
  a: {call: mul, inputs: [a.p1, x], mode: eval, every: 2}""",
    "a: {expr: \"mse(out, y, lazy='none')\", every: 2}": "a: {loss: mse, inputs: [out, y], lazy: none, every: 2}",
    'step: {update: net, loss: "mse(out, y) + 0.5 * l1(out, stop(x))"}': """\
step.loss.p1: {loss: mse, inputs: [out, y], mode: train}
  step.loss.p2: {call: stop, inputs: x, mode: train}
  step.loss.p3: {loss: l1, inputs: [out, step.loss.p2], mode: train}
  step.loss.p4: {call: mul, inputs: [0.5, step.loss.p3], mode: train}
  step.loss: {call: add, inputs: [step.loss.p1, step.loss.p4], mode: train}
  step: {update: net, loss: step.loss}""",
    'g: {gradient: "mean(out * y)", wrt: x}': """g.loss.p1: {call: mul, inputs: [out, y]}
  g.loss: {call: mean, inputs: g.loss.p1}
  g: {gradient: g.loss, wrt: x}""",
}


def number_anew(text):
    """Return a text in which the parts of every expression are numbered from 1 on."""
    known: dict[str, str] = {}
    return re.sub(r"p\d+(?=')", lambda found: known.setdefault(found.group(), f"p{len(known) + 1}"), text)


@pytest.mark.parametrize("expression", CASES)
def test_an_expression_is_the_ops_that_it_is_made_of(expression):
    found, meant = read(f"  {expression}\n"), read(f"  {CASES[expression]}\n")
    assert number_anew(show(found)) == number_anew(show(meant))
    text = dump(found)
    assert dump(load(text)) == text
    assert show(load(text)) != ""
    assert load(text) == load(dump(load(text)))


def test_in_blocks_expressions_mean_what_the_use_says():
    used = read("""
  one: {use: bell, inputs: x, args: {width: 3.0}}
  both: {expr: "one.density + 1"}
blocks:
  bell:
    inputs: [at]
    outputs: [density]
    args: {width: 1.0}
    ops:
      scaled: {expr: "at / (2 * ${width})"}
      density: {expr: "exp(-scaled * at)"}
""")
    written = read("""
  one.scaled: {call: div, inputs: [x, 6.0]}
  one.density.p1: {call: neg, inputs: one.scaled}
  one.density.p2: {call: mul, inputs: [one.density.p1, x]}
  one.density: {call: exp, inputs: one.density.p2}
  both: {call: add, inputs: [one.density, 1]}
""")
    assert number_anew(show(used)) == number_anew(show(written))
    assert 'one.density: {expr: "exp(-one.scaled * x)"}' in dump(used)


def test_what_holds_for_an_expression_may_be_a_variable():
    told = 'start: "${n}", until: "${n} epochs", every: "${n}", mode: "${when}", after: "${word}_read"'
    ops = '  other_read: {call: neg, inputs: other}\n  a: {expr: "mse(x, y)", FIELDS}\n'
    vars = "{tau: 0.5, n: 2, word: other, when: eval}"
    text = f"{HEAD}{ops}".replace('{tau: 0.5, n: 2, word: other, far: "${= 2 * tau}"}', vars)
    meant = "start: 2, until: 2 epochs, every: 2, mode: eval, after: other_read"
    assert show(load(text.replace("FIELDS", told))) == show(load(text.replace("FIELDS", meant)))
    problems = find_problems('  a: {expr: "x + y", until: "${word}", every: "${tau}"}')
    assert [(code, mark) for code, _, mark in problems] == [("GS050", '"${word}"'), ("GS057", '"${tau}"')]


def test_an_expression_over_several_lines_is_one():
    folded = read("  a:\n    expr: >\n      x\n      + y\n")
    assert show(folded) == show(read('  a: {expr: "x + y"}\n'))


PROBLEMS = {
    'a: {expr: "x + "}': ("GS068", "the expression ends too early", "+"),
    'a: {expr: "x + missing * y"}': (
        "GS104",
        "the expression of 'a' names 'missing', which is not declared; expected a value",
        "missing",
    ),
    'a: {expr: "x + maen(y)"}': ("GS110", "no call is named 'maen'", "maen"),
    'a: {expr: "x + mean(y, axsi=1)"}': ("GS112", "call `mean` has no option 'axsi'", "axsi"),
    'a: {expr: "x"}': ("GS068", "this is a name, and calculates nothing", "x"),
    'a: {expr: "2 * 3"}': ("GS068", "this comes to a number, and reads no value", "2 * 3"),
    'a: {expr: "x * (1 / (${n} - 2))"}': ("GS068", "this divides by zero", "1 / (${n} - 2)"),
    'a: {expr: "0 < x < 1"}': ("GS068", "these are several comparisons in one", "0 < x < 1"),
    'a: {expr: "x and y"}': ("GS068", "an expression has no `and`", "and"),
    'a: {expr: "not x"}': ("GS068", "an expression has no `not`", "not"),
    'a: {expr: "x ^ 2"}': ("GS068", "an expression has no `^`", "^"),
    'a: {expr: "(x // 2) // y"}': ("GS068", "an expression has no `//`", "//"),
    'a: {expr: "x && y"}': ("GS068", "an expression has no `&&`", "&&"),
    'a: {expr: "!x"}': ("GS068", "an expression has no `!`", "!"),
    'a: {expr: "x + y²"}': ("GS068", "an expression has no '²'", "²"),
    'a: {expr: "x > 0 & y < 1"}': ("GS068", "`&` and `|` bind closer than comparisons", "x > 0 & y < 1"),
    'a: {expr: "x > 0 | y"}': ("GS068", "`&` and `|` bind closer than comparisons", "0 | y"),
    'a: {expr: "x if y else x"}': ("GS068", "an expression has no `if`", "x if y else x"),
    'a: {expr: "concat([x, y], axis=1)"}': ("GS068", "a list is no value", "[x, y]"),
    'a: {expr: "2x + y"}': ("GS068", "there is no operator between the number and the name", "2x"),
    'a: {expr: "2(x + y)"}': ("GS068", "this is called like a function", "2"),
    'a: {expr: "z = x + y"}': ("GS068", "an expression assigns nothing", "="),
    'a: {expr: "minimum(x, y"}': ("GS068", "this `(` is not closed", "("),
    'a: {expr: "x + y)"}': ("GS068", "this `)` closes no bracket", ")"),
    'a: {expr: "x * $n"}': ("GS068", "this is not a variable", "$n"),
    'a: {expr: "x * n"}': ("GS068", "'n' is a variable", "n"),
    'a: {expr: "net(x)"}': ("GS068", "'net' is a model", "net"),
    'a: {expr: "x.T"}': ("GS068", "'x' is a value, and has no `.T`", "x.T"),
    'a: {expr: "x * math.pi"}': ("GS068", "a name has no module before it", "math.pi"),
    'a: {expr: "torch.mean(x)"}': ("GS068", "functions are called without a module", "torch.mean"),
    'a: {expr: "mean(x, axis=y + 1)"}': ("GS068", "an option is a constant", "y + 1"),
    'a: {expr: "mean(x, keepdims=true)"}': ("GS068", "an expression has no `true`", "true"),
    'a: {expr: "mean(*x)"}': ("GS068", f"an expression has {VALUES.made_of}: no such operation", "*x"),
    'a: {expr: "x.mean()"}': ("GS068", "a value has no methods", "x.mean"),
    'a: {expr: "mean(torch.inf * x)"}': ("GS068", "a name has no module before it", "torch.inf"),
    'a: {expr: "x + y", call: add}': ("GS052", "an op has one kind, found `expr` and `call`", "expr"),
    'a: {expr: "x + y", inputs: x}': ("GS040", "an expression has no key 'inputs'", "inputs"),
    "a: {expr: 3}": ("GS041", "expected a string as `ops.a.expr`, found the number 3", "3"),
    'a: {expr: "max(x, 0)"}': ("GS111", "call `max` takes 1 input (x), found 2", "max(x, 0)"),
}


@pytest.mark.parametrize("ops", PROBLEMS)
def test_a_problem_is_at_the_characters_that_are_meant(ops):
    assert find_problems(f"  {ops}\n") == [PROBLEMS[ops]]


@pytest.mark.parametrize(
    ("called", "meant"), [("crossentropy", "cross_entropy"), ("bcewithlogits", "bce_with_logits"), ("maen", "mean")]
)
def test_misspelt_losses_and_calls_are_recognised(called, meant):
    with pytest.raises(SpecError) as raised:
        read(f'  a: {{expr: "{called}(x, y)"}}\n')
    assert raised.value.diagnostics[0].label.startswith(f"did you mean '{meant}'")


def test_parts_are_no_names():
    problems = find_problems('  b: {expr: "x * y + 1"}\n  c: {call: neg, inputs: b.1}\n')
    assert problems == [("GS104", "`inputs` of op 'c' names 'b.1', which is not declared; expected a value", "b.1")]


def test_pi_is_no_value():
    problems = find_problems('  pi: {forward: net, inputs: y}\n  b: {expr: "2 * pi + x"}\n')
    assert problems == [("GS068", "`pi` is the number in expressions, and there is a value of that name", "pi")]


LETTERS = ["x", "y", "pi", "1", "2.5", "mean", "stop", "split", "(", ")", "[", "]", ",", "=", ":", "None", "True"]
LETTERS += ["+", "-", "*", "**", "/", "//", "@", "%", "<", "<=", "==", "!=", "&", "|", "~", "^", "not ", "and ", " "]
LETTERS += [
    "axis",
    "'",
    "${tau}",
    "${",
    "}",
    ".",
    "...",
    "lambda",
    "__import__",
    "é",
    "\n",
    "#",
    ";",
    "\\",
    "{",
    "0x",
    "_",
]


@pytest.mark.parametrize("count", [25_000, pytest.param(200_000, marks=pytest.mark.long)])
def test_random_texts_are_read_or_refused_and_never_run(count):
    chosen = random.Random(5)
    read_ones = 0
    for _ in range(count):
        text = "".join(chosen.choices(LETTERS, k=chosen.randint(1, 12)))
        try:
            read_expression(text, VALUES)
        except ExpressionError as error:
            found = error
        else:
            read_ones += 1
            continue
        assert 0 <= found.start <= found.end <= len(text)
        assert found.help
    assert read_ones > count / 100


@pytest.mark.parametrize(
    "text",
    ["x + " * 600 + "x", "-" * 1500 + "x", "(" * 250 + "x" + ")" * 250, "x" * (LONGEST + 1), "f(" * 150 + ")" * 150],
)
def test_limits_hold(text):
    with pytest.raises(ExpressionError):
        read_expression(text, VALUES)


def test_the_list_of_operators_is_closed():
    named = {*VALUES.operators.values()}
    assert named == {*OPERATORS, *SIGNS}
    kinds = (*ast.operator.__subclasses__(), *ast.unaryop.__subclasses__(), *ast.cmpop.__subclasses__())
    refused = {each.__name__ for each in kinds} - {each.__name__ for each in VALUES.operators}
    assert refused == {"Mod", "LShift", "RShift", "BitXor", "FloorDiv", "Not", "UAdd", "Is", "IsNot", "In", "NotIn"}
