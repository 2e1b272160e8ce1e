"""The same step written shorter: calls and losses as expressions, and some of them in a block.

What is made here is text, op by op in brackets, without any code of the compiler. The oracle is given the step as it
was.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random

from tests.properties.nested import hold_nested
from tests.properties.parted import hold

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@"}
PLAIN = {"call", "loss", "inputs", "args"}
"""Fields of an op that may become a part of another's expression."""
ROOT = {*PLAIN, "outputs", "mode", "dataset", "every", "start", "until", "lazy"}
TAKING = {"update", "adapt"}
"""Kinds of ops that have a loss."""
FIELDS = ("inputs", "loss", "gradient", "gradients", "wrt", "grad_outputs", "value", "after", "like", "every", "expr")
"""Fields in which names of values and ops stand."""


def write_shorter(document: Mapping) -> Mapping:
    """Return a document that means the same, with expressions and phases, and in every third with a block."""
    chosen = Random(json.dumps(document))
    given = [name for name, one in document["inputs"].items() if "of" not in one]
    ops, blocks = hold_nested(hold(document["ops"]), given)
    returned, has_parts = document.get("outputs"), not {"part", "coil", "kit"}.isdisjoint(ops)
    _Writer(ops, returned, chosen).write()
    if chosen.random() < 0.4 and not has_parts:
        ops, blocks = _move(ops, returned, {*document["inputs"], *document.get("state", ())}, chosen)
    ops, phases = _divide(ops, Random(f"{chosen.random()} phases"))
    inputs = {name: one for name, one in document["inputs"].items() if "of" not in one}
    more = {"blocks": blocks, "phases": phases}
    return {**document, "inputs": inputs, "ops": ops, **{key: each for key, each in more.items() if each}}


def _divide(ops: dict[str, dict], chosen: Random) -> tuple[dict[str, dict], list[list[str]]]:
    """Return the ops with a half of those that wait for a write, or for two, in phases behind it, and the phases."""
    waits = {name: op["after"] if isinstance(op.get("after"), list) else [] for name, op in ops.items()}
    firsts = sorted({each for after in waits.values() for each in after if each in ops})
    if not firsts or chosen.random() < 0.5:
        return ops, []
    first = chosen.choice(firsts)
    behind = [name for name, after in waits.items() if first in after]
    second = next((name for name in behind if any({first, name} <= {*after} for after in waits.values())), "")
    last = [name for name in behind if second in waits[name]] if second else behind
    gone = {name: {first, second} for name in last} | ({second: {first}} if second else {})
    kept = {name: [each for each in waits[name] if each not in gone.get(name, ())] for name in gone}
    rest = {name: {key: each for key, each in ops[name].items() if key != "after"} for name in gone}
    found = {name: {**rest[name], **({"after": kept[name]} if kept[name] else {})} for name in gone}
    return {name: found.get(name, op) for name, op in ops.items()}, [[first], *([[second]] if second else []), last]


def is_call(op: Mapping) -> bool:
    """Return whether an op is a call or a loss of the library."""
    kind = next((key for key in ("call", "loss") if key in op), "")
    if not kind or not isinstance(op[kind], str) or ":" in op[kind] or not TAKING.isdisjoint(op):
        return False
    return _is_plain(op.get("inputs", [])) and all(map(_is_plain, (op.get("args") or {}).values()))


def pick(op: Mapping, *keys: str) -> Mapping:
    """Return some fields of an op, those that it has."""
    return {key: op[key] for key in keys if key in op}


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float) or (isinstance(value, list) and all(map(_is_plain, value)))


def find_uses(op: Mapping) -> Iterator[str]:
    """Yield the names in an op, each as often as it stands there."""
    for key in FIELDS:
        value = op.get(key)
        if key != "expr" and not (key == "loss" and TAKING.isdisjoint(op)):
            yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))
            if isinstance(value, dict):
                yield from (each for each in value.values() if isinstance(each, str))
        elif key == "expr" and isinstance(value, str):
            yield from re.findall(r"[a-z_]\w*(?:\.\w+)*(?!\w*[(=])", value)


class _Writer:
    """Makes expressions of ops, and takes away those that are in one."""

    def __init__(self, ops: dict[str, dict], returned: list[str] | None, chosen: Random) -> None:
        self.ops, self.chosen, self.returned = ops, chosen, returned
        self.uses = Counter(name for op in ops.values() for name in find_uses(op))
        self.gone: set[str] = set()

    def write(self) -> None:
        """Write the ops anew."""
        for name, op in [*self.ops.items()]:
            if "adapt" in op and self.chosen.random() < 0.5:
                self.take_in(op)
            key = "loss" if TAKING & op.keys() else "gradient" if "gradient" in op else ""
            is_kept = name not in self.gone and self.returned is not None  # without `outputs` it would be returned
            is_able = key and is_kept and isinstance(op.get(key), str) and self.fits(op[key])
            if is_able and self.chosen.random() < 0.5:
                loss, op[key] = op[key], self.spell(op[key])
                self.gone.add(loss)
            elif name not in self.gone and is_call(op) and op.keys() <= ROOT and self.chosen.random() < 0.6:
                text = self.spell(name)
                self.ops[name] = {"expr": text, **{key: op[key] for key in op if key not in (*PLAIN, "lazy")}}
        for name in self.gone:
            del self.ops[name]

    def take_in(self, op: dict) -> None:
        """Let a derived model take a gradient itself, which only it uses."""
        made = self.ops[op["gradients"]]
        if made.keys() == {"gradient", "wrt"} and self.uses[op["gradients"]] == 1:
            self.gone.add(op.pop("gradients"))
            op["loss"] = made["gradient"]

    def fits(self, name: object) -> bool:
        """Return whether an operand may be written where it is used."""
        op = self.ops.get(name) if isinstance(name, str) else None
        if op is None or name in self.gone or self.uses[name] != 1 or not is_call(op) or not op.keys() <= PLAIN:
            return False
        return name not in self.returned if self.returned is not None else "loss" not in op

    def spell(self, name: str) -> str:
        """Return the expression of an op, with the operands that are written in it."""
        op = self.ops[name]
        operands = op.get("inputs", [])
        texts = []
        for each in operands if isinstance(operands, list) else [operands]:
            if self.fits(each) and self.chosen.random() < 0.7:
                texts.append(self.spell(each))
                self.gone.add(each)
            else:
                texts.append(each if isinstance(each, str) else repr(each))
        function = op.get("call") or op["loss"]
        if function in INFIX and not op.get("args"):
            return f"({f' {INFIX[function]} '.join(texts)})"
        if function == "neg":
            return f"(-{texts[0]})"
        options = [f"{key}={value!r}" for key, value in {**(op.get("args") or {}), **pick(op, "lazy")}.items()]
        return f"{function}({', '.join([*texts, *options])})"


def _move(
    ops: dict[str, dict], returned: list[str] | None, given: set[str], chosen: Random
) -> tuple[dict[str, dict], dict]:
    """Return the ops with some calls and losses in a block, and the block; nothing where none can be moved."""
    kept = set(returned or ())
    able = [
        name for name, op in ops.items() if (is_call(op) or "expr" in op) and "outputs" not in op and name not in kept
    ]
    if returned is None:  # losses are returned under their names
        able = [name for name in able if "call" in ops[name]]
    moved = {name for name in able if chosen.random() < 0.6}
    if not moved:
        return ops, {}
    inside = {name: op for name, op in ops.items() if name in moved}
    values = {value for name, op in ops.items() for value in (name, *_find_outputs(op))} | given
    inputs = sorted({name for op in inside.values() for name in find_uses(op)} - moved)
    inputs = [name for name in inputs if name in values]
    names = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, sorted(moved, key=len, reverse=True)))})(?![\w.(=])")
    outside = {}
    for name, op in ops.items():
        if name not in moved:
            outside[name] = {key: _rename(value, key, op, names) for key, value in op.items()}
    block = {"inputs": inputs, "outputs": sorted(moved), "ops": inside}
    return {**outside, "used": {"use": "part", "inputs": {name: name for name in inputs}}}, {"part": block}


def _find_outputs(op: Mapping) -> Iterator[str]:
    for each in op.get("outputs") or ():
        yield from [each] if isinstance(each, str) else each


def _rename(value: object, key: str, op: Mapping, names: re.Pattern[str]) -> object:
    """Return a field of an op that stays, with what has moved under its new name."""
    if key not in FIELDS or (key == "loss" and TAKING.isdisjoint(op)):
        return value
    match value:
        case str():
            return names.sub(r"used.\1", value)
        case list():
            return [_rename(each, key, op, names) for each in value]
        case dict():
            return {name: _rename(each, key, op, names) for name, each in value.items()}
        case _:
            return value
