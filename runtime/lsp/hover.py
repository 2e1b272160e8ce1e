"""Hover texts: what the compiler knows of the name, the key or the word under the cursor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from compiler import Plan
from compiler.plan.summary import find_moments
from graphspec.analysis.scope import find_expression
from graphspec.declare.blocks import UseOp
from graphspec.declare.formulas import LOSS
from graphspec.declare.library import CALLS, LOSSES
from graphspec.declare.ops import CopyOp, EmaOp, Op, UpdateOp
from graphspec.read.interpolation import spell
from graphspec.read.source import Plain
from runtime.lsp.complete import describe_function, find_op, is_expression
from runtime.lsp.cursor import MARK, Cursor, find_cursor
from runtime.lsp.keys import describe_key, find_words
from runtime.lsp.names import Declared, Names, Symbol, look
from runtime.lsp.snapshot import Snapshot

_WEIGHTS = ("params", "tied", "buffers")
_WORD_BEFORE = re.compile(r"\w*$", re.ASCII)
_WORD_AFTER = re.compile(r"^\w*", re.ASCII)


def hover(snapshot: Snapshot, plan: Plan | None, offset: int) -> str:
    """Return what is known about what stands at an offset, as Markdown; nothing where nothing is.

    ``plan`` is the last that there was.
    """
    place = snapshot.source.span(offset, offset)
    mention = snapshot.names.at(snapshot.file, place.line, place.column)
    if mention is None:
        cursor = find_cursor(snapshot, offset)
        return "" if cursor is None else _describe_word(cursor)
    declared = snapshot.names.declared.get(mention.symbol)
    if declared is None:
        return ""
    paragraphs = [_describe_symbol(declared, snapshot), *_describe_facts(declared, snapshot.names, plan)]
    return "\n\n".join(filter(None, paragraphs))


def _describe_word(cursor: Cursor) -> str:
    """Return what a key, a word or a function of the language means."""
    found, data = cursor.get(cursor.path), _drop_mark(cursor.document.data)
    if cursor.is_key:
        written = next((each for each in found if MARK in each), "") if isinstance(found, dict) else ""
        word = written.replace(MARK, "")
        text = describe_key(data, (*cursor.path, word))
        return f"`{word}`: {text}" if text else ""
    if not isinstance(found, str):
        return ""
    before, _, after = found.partition(MARK)
    is_call = find_op(cursor.path) is not None and cursor.path[-1] in ("call", "loss")
    word = _WORD_BEFORE.findall(before)[0] + _WORD_AFTER.findall(after)[0]
    if is_expression(cursor) or is_call:
        signature = CALLS.get(word) or LOSSES.get(word)
        return "" if signature is None else describe_function(word, signature)
    text = find_words(data, cursor.path).get(before + after, "")
    return f"`{before + after}`: {text}" if text else ""


def _drop_mark(value: Plain) -> Plain:
    """Return data as it is without the cursor."""
    match value:
        case str():
            return value.replace(MARK, "")
        case dict():
            return {key.replace(MARK, ""): _drop_mark(each) for key, each in value.items()}
        case list():
            return [_drop_mark(each) for each in value]
        case _:
            return value


def _describe_symbol(declared: Declared, snapshot: Snapshot) -> str:
    """Return what a name is, as the text declares it."""
    symbol = declared.symbol
    holder = symbol.scope.rpartition("/")[2]
    what = "" if "/" in symbol.scope else "the block "
    inside = f" of {what}`{holder}`" if symbol.scope else ""
    match symbol.space:
        case "variable":
            written = None if snapshot.document is None else look(snapshot.document.data, declared.path)
            value = "" if isinstance(written, dict | list) else f", `{spell(written)}`"
            return f"`{symbol.name}`: a {'constant' if inside else 'variable'}{inside}{value}"
        case "block":
            outputs = ", ".join(f"`{each}`" for each in snapshot.names.outputs.get(symbol.name, ()))
            uses = [each.name for each, block in snapshot.names.uses.items() if block == symbol.name]
            return f"`{symbol.name}`: a block with the outputs {outputs}; used by {_enumerate(uses) or 'nothing'}"
        case "data":
            return f"`{symbol.name}`: a data set"
        case "name":
            if declared.facets == ("value",):
                at = find_op(declared.path)
                made = f" of the op `{at[-1]}`" if at is not None else ""
                return f"`{symbol.name}`: a value{made}{inside}"
            kind = declared.op.kind if declared.op is not None else declared.facets[0]
            named = {"use": "a use of a block", "expr": "an expression", "ema": "an average", "state": "a state"}
            what = named.get(kind, f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}")
            return f"`{symbol.name}`: {what}{inside}"


def _describe_facts(declared: Declared, names: Names, plan: Plan | None) -> Iterator[str]:
    """Yield what the plan says about a name; of one in a block, for every use of it."""
    symbol = declared.symbol
    if plan is None:
        yield "_The spec has errors: nothing more is known yet._" if symbol.space == "name" else ""
        return
    if symbol.space == "variable":
        if not symbol.scope and symbol.name in plan.spec.vars:
            value = plan.spec.vars[symbol.name]
            yield "" if isinstance(value, dict | list) else f"value: `{spell(value)}`"
        return
    if symbol.space != "name":
        return
    if "model" in declared.facets or "average" in declared.facets:
        yield from _describe_model(symbol.name, plan)
        if "op" not in declared.facets:
            return
    if isinstance(declared.op, UseOp):
        values = [f"{symbol.name}.{each}" for each in names.outputs.get(declared.op.use, ())]
        yield "\n".join(f"- `{each}`: {plan.types[each]}" for each in values if each in plan.types)
        return
    for name in find_instances(symbol, names):
        value = name if name in plan.types else LOSS.format(name)  # that of an update
        if value in plan.types:
            yield f"`{value}`: {plan.types[value]}"
        readers = [
            find_expression(op) or op_name
            for op_name, op in plan.spec.ops.items()
            if any(each.name == name for each in op.references()) and find_expression(op) != name
        ]
        if readers:
            yield f"read by {_enumerate([each.removesuffix('.loss') for each in dict.fromkeys(readers)])}"
        for mode in plan.program.modes:
            when = find_moments(plan, mode).get(name) if mode.mode == "train" else None
            if when is not None:
                yield f"writes {when}"
        if name in plan.spec.ops:
            yield f"```text\n{plan.explain(name).strip()}\n```"


def find_instances(symbol: Symbol, names: Names) -> Iterator[str]:
    """Yield the names that a symbol has in the plan: one for every use of its block."""
    if not symbol.scope:
        yield symbol.name
        return
    for use, block in names.uses.items():
        if block == symbol.scope:
            first = ".1" if block in names.around else ""  # of iterations and alternatives
            yield from (f"{prefix}{first}.{symbol.name}" for prefix in find_instances(use, names))


def _describe_model(name: str, plan: Plan) -> Iterator[str]:
    """Yield what a model is made of, what writes it, and which of its versions ops read."""
    for model in plan.program.models:
        if model.name == name:
            number = sum(prod(each.shape) for each in model.parameters)
            made = f"`{model.class_path}`" if isinstance(model.class_path, str) else model.kind
            counted = f"{number:,} {'parameter' if number == 1 else 'parameters'}"
            yield f"{made}, {counted if model.parameters else 'parameters known once it is built'}"
    writers = [
        f"`{op_name}` ({op.kind})" for op_name, op in plan.spec.ops.items() if name in _list_written(op_name, op)
    ]
    yield f"written by {', '.join(writers)}" if writers else "written by no op: it stays as it is"
    for function, graph in plan.graphs.items():
        versions: dict[int, dict[str, None]] = {}
        for node in graph.nodes.values():
            for read in node.reads if node.called is not None else ():
                if read.at.cell.kind in _WEIGHTS and name in read.at.cell.owners:
                    versions.setdefault(read.at.version, {})[node.op] = None
        lines = [f"- `@{version}`: read by {_enumerate(list(ops))}" for version, ops in sorted(versions.items())]
        if lines:
            yield f"versions in `{function}`:\n" + "\n".join(lines)


def _list_written(name: str, op: Op) -> tuple[str, ...]:
    """Return the models that an op writes."""
    match op:
        case UpdateOp():
            return op.update
        case EmaOp():
            return (op.target(name),)
        case CopyOp():
            return (op.into,)
        case _:
            return ()


def _enumerate(names: list[str]) -> str:
    return ", ".join(f"`{each}`" for each in names)
