"""Printing: comments beside or above their lines, long statements broken at commas, nothing that leaves a comment."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from compiler import compile_step
from graphspec.loading import load
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.codegen import syntax
from runtime.codegen import text as layout
from runtime.codegen.module import emit_module
from runtime.codegen.text import WIDTH, Block, Line, Source, lay_out, print_code

EXAMPLES = Path(__file__).parents[3] / "examples"


def line(text: str, **fields) -> Line:
    """Return a line of code from its text."""
    return Line(statement=ast.parse(text).body[0], **fields)


def test_comments_of_a_block_stand_in_one_column():
    header = Line(statement=syntax.define("f"))
    page = print_code([Block(header=header, body=(line("a = 1", comment="one"), line("abc = 2", comment="two")))])
    assert page.text == "def f():\n    a = 1    # one\n    abc = 2  # two\n"


def test_a_comment_that_does_not_fit_beside_its_line_stands_above_it():
    page = print_code([line("a = 1", comment=" ".join(["word"] * 30))])
    *above, last = page.text.splitlines()
    assert last == "a = 1"
    assert all(text.startswith("# word") and len(text) <= WIDTH for text in above)


def test_a_long_call_gets_one_argument_per_line():
    arguments = ", ".join(f"argument_{index}=f({index})" for index in range(10))
    lines = lay_out(ast.parse(f"x = g(1, {arguments})").body[0], 4)
    assert lines[0] == "    x = g("
    assert lines[1] == "        1,"
    assert lines[-2:] == ("        argument_9=f(9),", "    )")


def test_a_long_sum_gets_a_line_of_its_own_and_a_longer_one_a_line_for_each_term():
    fits = " + ".join(f"{letter * 10}" for letter in "abcdefgh")
    assert lay_out(ast.parse(f"{'x' * 20} = {fits}").body[0], 4) == (f"    {'x' * 20} = (", f"        {fits}", "    )")
    longer = " - ".join(f"{letter * 20}" for letter in "abcdefgh")
    lines = lay_out(ast.parse(f"x = {longer}").body[0], 0)
    assert lines[:3] == ("x = (", f"    {'a' * 20}", f"    - {'b' * 20}")
    assert len(lines) == 10


def test_layers_stand_one_per_line_even_where_they_fit():
    lines = lay_out(ast.parse("m = nn.Sequential(nn.Linear(1, 2), Residual(nn.ReLU(), nn.ReLU()))").body[0], 0)
    assert lines[1:3] == ("    nn.Linear(1, 2),", "    Residual(")


def test_broken_statements_mean_the_same():
    text = "x = {'a': [1, 2], 'b': (3,), **rest, 'c': f(*args, key=-1.5, **more)}" + " " * 0
    long = text.replace("'a'", "'" + "a" * 130 + "'")
    printed = "\n".join(lay_out(ast.parse(long).body[0], 0))
    assert ast.dump(ast.parse(printed)) == ast.dump(ast.parse(long))
    assert "'" not in printed


def test_a_string_that_holds_a_double_quote_keeps_its_own_quotes():
    assert lay_out(ast.parse("x = 'say \"no\"'").body[0], 0) == ("x = 'say \"no\"'",)


def test_a_note_cannot_leave_its_comment_nor_a_doc_its_string():
    hostile = 'x"""\nimport os\r# \x00\u2028 \\'
    body = (line("a = 1", comment=hostile, above=(hostile,)),)
    page = print_code([Block(header=Line(statement=syntax.define("f")), body=body, doc=hostile)])
    tree = ast.parse(page.text)
    assert [type(node) for node in tree.body[0].body] == [ast.Expr, ast.Assign]


def test_lines_know_the_op_they_come_from():
    code = [Source(text="\n"), line("a = 1", op="first", place="gan.yaml:3:1", above=("why",)), line("b = 2")]
    assert print_code(code).places == {3: ("first", "gan.yaml:3:1"), 4: ("first", "gan.yaml:3:1")}


def test_infinities_and_negative_numbers_are_written_as_python_reads_them():
    for value in (float("inf"), -float("inf"), -2.5, 1e-8, True, None, (1, (2.0, "x")), {"a": -1}):
        assert eval("\n".join(lay_out(ast.Expr(value=syntax.literal(value)), 0))) == value


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_the_short_way_to_double_quotes_gives_the_same_text_as_the_tokenizer(path, monkeypatch):
    program = compile_step(load(path)).program
    text = emit_module(program, TORCH).text
    monkeypatch.setattr(layout, "_is_plain", lambda text: False)
    assert emit_module(program, TORCH).text == text
    assert '["' in text


@pytest.mark.parametrize(
    "text", ["f'a{b}c'", "b'a'", "'a\\n'", "['', 'a', \"'\", b'']", "f('a') if 'b' in c else d['e']"]
)
def test_only_plain_strings_change_their_quotes(text):
    statement = ast.parse(f"x = {text}").body[0]
    (line,) = lay_out(statement, 0)
    assert ast.dump(ast.parse(line).body[0]) == ast.dump(statement)
    assert line == layout._double_quoted(ast.unparse(statement))
