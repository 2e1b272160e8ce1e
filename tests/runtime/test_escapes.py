"""Nothing of a spec gets out of its quotes: trees refuse what is no name, texts are compared with their trees."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import runtime
from compiler import compile_step
from graphspec.loading import load
from runtime import emit
from runtime.backends.tensorflow.codegen.dialect import TENSORFLOW
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.codegen import module, syntax
from runtime.codegen.module import emit_module
from runtime.codegen.resources import Extras
from runtime.codegen.text import Block, Line, Page, Source, print_code
from runtime.codegen.verify import EscapedError, verify_text

ROOT = Path(runtime.__file__).parent
NAMED = {
    node.__name__
    for node in vars(ast).values()
    if isinstance(node, type)
    and issubclass(node, ast.AST)
    and {"id", "attr", "arg", "name", "names", "asname", "module", "kwd_attrs", "rest"} & {*node._fields}
}
"""Nodes that hold a name as text."""
HOSTILE = ("x=(print(1), 0)[1], y", "a b", "a.b", "lambda", "None", "__debug__", "", "a\n", "ª", "1a", "a#", "a:b")
SPECS = {
    "an option of a class": """graphspec: 1
name: a
inputs: {x: {shape: [batch, 4]}}
models: {net: {layers: [{linear: 2}], optimizer: {class: "torch.optim:SGD", "momentum=(print(1), 0)[1], dampening": 0}}}
ops:
  y: {forward: net, inputs: x}
  far: {loss: mse, inputs: [y, 0.0]}
  fit: {update: net, loss: far}
""",
    "an input of a forward": """graphspec: 1
name: a
inputs: {x: {shape: [batch, 4]}}
models: {net: {class: "zoo:Net", args: {function: 1, "a=(print(1), 0)[1], b": 2}}}
ops:
  y: {forward: net, inputs: {"x=(print(1), x)[1], y": x}}
outputs: y
""",
    "a method": """graphspec: 1
name: a
inputs: {x: {shape: [batch, 4]}}
models: {net: {class: "zoo:Net"}}
ops:
  y: {forward: net, inputs: x, method: "forward(print(1)) or net"}
outputs: y
""",
    "a function": """graphspec: 1
name: a
inputs: {x: {shape: [batch, 4]}}
ops:
  y: {call: "zoo:make", inputs: {"x=(print(1), x)[1], y": x}, args: {"a=(print(1), 0)[1], b": 2}}
outputs: y
""",
}


def test_names_stand_only_in_trees_that_one_module_makes():
    makers = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="ast"), attr=made)) if made in NAMED:
                    makers.add(path.relative_to(ROOT).as_posix())
                case ast.ImportFrom(module="ast"):
                    makers.add(path.relative_to(ROOT).as_posix())
    assert makers == {"codegen/syntax.py"}


@pytest.mark.parametrize(
    "make",
    [
        syntax.name,
        syntax.store,
        lambda text: syntax.attribute(syntax.name("a"), text),
        lambda text: syntax.dotted(f"a.{text}..b"),
        lambda text: syntax.call("f", **{text: syntax.constant(1)}),
        lambda text: syntax.method(syntax.name("a"), text),
        lambda text: syntax.assign(text, syntax.constant(1)),
        lambda text: syntax.assign(["a", text], syntax.constant(1)),
        lambda text: syntax.unpack("a", [text], syntax.constant(1)),
        lambda text: syntax.register(text),
        lambda text: syntax.forget([text]),
        lambda text: syntax.each_of([text], syntax.name("a")),
        lambda text: syntax.within_named([(syntax.name("a"), text)]),
        lambda text: syntax.share(["a", text]),
        lambda text: syntax.bring("a", text),
        lambda text: syntax.bring_from("a", [(text, None)]),
        lambda text: syntax.bring_from("a", [("b", text)]),
        lambda text: syntax.define(text),
        lambda text: syntax.define("f", syntax.parameter(text)),
    ],
)
def test_no_node_is_made_with_what_is_no_identifier(make):
    for text in HOSTILE:
        with pytest.raises(ValueError, match="is no identifier"):
            make(text)


@pytest.mark.parametrize("dialect", [TORCH, TENSORFLOW], ids=["torch", "tensorflow"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_code_in_a_name_is_stopped_by_each_barrier_alone(monkeypatch, spec, dialect):
    monkeypatch.setattr("graphspec.declare.fields.is_name", lambda text: True)
    monkeypatch.setattr("graphspec.declare.ops.forward.is_name", lambda text: True)
    program = compile_step(load(spec), backend=dialect.framework.lower().replace("pytorch", "torch")).program
    if dialect is TENSORFLOW and "method:" in spec:
        assert (
            'method="forward(print(1)) or net"' in emit_module(program, dialect).text
        )  # TensorFlow's code has it as a text
        return
    with pytest.raises(ValueError, match="is no identifier"):
        emit_module(program, dialect)
    monkeypatch.setattr(syntax, "identifier", lambda text: text)
    for extras in (Extras(), Extras(debug=True, norms=True), Extras(profile=True)):
        with pytest.raises(EscapedError, match="reads otherwise"):
            emit_module(program, dialect, extras=extras)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_every_emission_compares_its_text_with_its_tree(monkeypatch, backend):
    plan = compile_step(
        load(
            SPECS["an input of a forward"]
            .replace('"x=(print(1), x)[1], y"', "x")
            .replace(', "a=(print(1), 0)[1], b": 2', "")
        ),
        backend=backend,
    )
    assert "function=1" in emit(plan)
    monkeypatch.setattr(module, "print_code", lambda code: Page(text=f"{print_code(code).text}print(1)\n"))
    with pytest.raises(EscapedError, match="reads otherwise"):
        emit(plan)


LINE = Line(statement=syntax.assign("a", syntax.constant("it's")), comment='b"\nprint(1)', above=("c\nprint(1)",))


@pytest.mark.parametrize(
    "text",
    [
        "a = 'it is'\n",
        "a = ('it\\'s', 0)[0]\n",
        "a = 'it\\'s'\nprint(1)\n",
        "b = 'it\\'s'\n",
        "a: str = 'it\\'s'\n",
        "a = b'it\\'s'\n",
        "",
        "a = 'it",
        "a = '\0'",
    ],
)
def test_a_text_that_reads_otherwise_is_refused(text):
    with pytest.raises(EscapedError):
        verify_text(text, [LINE])


def test_a_text_that_reads_as_its_tree_is_fine():
    negative = Line(
        statement=syntax.perform(syntax.sequence(map(syntax.constant, (-0.0, -1, -1.5, float("-inf"), None))))
    )
    header = Line(statement=syntax.define("f", syntax.parameter("a", syntax.constant(True))))
    code = [
        Source(text='"""A docstring."""\n# A comment.\n'),
        LINE,
        negative,
        Block(header=header, body=(LINE,), doc='x"""\n'),
    ]
    verify_text(print_code(code).text, code)


@pytest.mark.parametrize("text", ["print(1)", '"""a"""\nprint(1)', '"""a""" + print(1)', "import os", "a = 1"])
def test_what_is_copied_is_no_other_code(text):
    code = [Source(text=text)]
    with pytest.raises(EscapedError, match="holds other code"):
        verify_text(print_code(code).text, code)
