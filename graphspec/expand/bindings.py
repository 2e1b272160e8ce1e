"""Blocks become ops, second pass: the names in copied ops get their meaning.

A name in a block is that of an op or a value of the block, of an input that the use gives, or of a model or a state of
the document. Every op says itself which of its words are names of something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pydantic import BaseModel, ValidationError

from graphspec.check.names import WANTED
from graphspec.declare.blocks import BlockSpec, UseOp
from graphspec.declare.graph import Ops, find_kinds
from graphspec.declare.ops import KINDS
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.expand.copies import COMMON, Expansion, Moved, Use, check_part, find_outer
from graphspec.limits import MOST_PROBLEMS
from graphspec.read.source import Document, Path, Plain
from graphspec.words import closest, did_you_mean, enumerate_names, mend_name

MODELS = frozenset({"model", "source", "called", "adapted", "rate"})
"""What a reference may name that a block has not: models are the document's."""
UNSTOPPED = "{}.unstopped"
"""The name of a value whose own name its constant has taken."""
CLOCKS = frozenset({"every", "start", "until"})
WRITES = frozenset({"update", "ema", "copy", "assign"})


class _Uses(BaseModel):
    ops: dict[str, UseOp]


class _Ops(BaseModel):
    ops: Ops


def bind_uses(expansion: Expansion) -> Document:
    """Return the document with the names of all copies bound, and without the uses.

    Raises SpecError for uses that cannot be read or do not fit their block, and for names that a block does not know.
    """
    return _Binder(expansion).run() if expansion.uses else expansion.document


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """What the names in a block mean for one use of it."""

    use: Use
    block: BlockSpec
    op: UseOp
    given: Mapping[str, Plain]
    """The common fields of the use, as they are written, its own names bound."""
    known: Mapping[str, str]
    """By the names of ops and values in the block: those of the copies."""
    inputs: Mapping[str, Plain]
    stopped: Mapping[str, str]
    """The outputs that are made constants, and the names of what they are made of."""


class _Binder:
    """Binds the names of copies, use by use from the outside in."""

    def __init__(self, expansion: Expansion) -> None:
        self._expansion, self._document = expansion, expansion.document
        assert isinstance(self._document.data, dict)
        self._data = self._document.data
        ops = self._data["ops"]
        assert isinstance(ops, dict)
        self._ops = dict(ops)
        self._renamed: dict[str, str] = {}
        """By name, of ops and values whose name an op has that makes them constants."""
        self._constants: dict[str, Plain] = {}
        """Ops that make outputs constants, by their names."""
        self._scopes: dict[str, _Scope] = {}
        self._names = frozenset(use.name for use in expansion.uses)
        writes = {
            name: use
            for name, use in expansion.copies.items()
            if isinstance(op := self._ops[name], dict) and not WRITES.isdisjoint(find_kinds(op))
        }
        self._writing = frozenset((*writes, *(each.name for use in writes.values() for each in find_outer(use))))
        """The ops that write, and the uses of blocks in which one does."""
        self._unsound: set[str] = set()
        """The uses of blocks that list outputs which they do not have; nothing is held against what reads these."""
        self._problems: list[Diagnostic] = []

    def run(self) -> Document:
        """Return the flat document."""
        for use in self._expansion.uses:
            inner = [name for name, each in self._expansion.copies.items() if each == use]
            self._scopes[use.name] = scope = self._open(use, inner)
            for name in inner:
                self._ops[name] = self._bind(name, scope)
            for name, stopped in scope.stopped.items():
                held = {
                    key: each for key, each in scope.given.items() if key != "after" and self._is_held(key, name, use)
                }
                self._constants[name] = {"call": "stop", "inputs": stopped, **held}
        outside = [name for name in self._ops if name not in self._expansion.copies and name not in self._scopes]
        for name in outside:
            self._ops[name] = self._bind_outside(name)
        if self._problems:
            raise SpecError(dict.fromkeys(self._problems[:MOST_PROBLEMS]), self._document.texts)
        ops = {self._renamed.get(name, name): op for name, op in self._ops.items() if name not in self._scopes}
        data: dict[str, Plain] = {**self._data, "ops": {**ops, **self._constants}}
        origins = dict(self._expansion.origins)
        for name, final in self._renamed.items():
            origins[final] = origins[name]
        for name in self._constants.keys() - origins.keys():
            use = next(use for use in self._expansion.uses if name.startswith(f"{use.name}."))
            origins[name] = (use.path, use)
        return replace(self._document, data=data, places=Moved(self._expansion.places, origins))

    def _open(self, use: Use, inner: list[str]) -> _Scope:
        """Return what the names of a block mean for a use of it."""
        written = self._ops[use.name]
        check_part(_Uses, {"ops": {use.name: written}}, self._document)
        assert isinstance(written, dict)
        op, block = UseOp.model_validate(written), self._expansion.blocks[use.block]
        path: Path = ("ops", use.name)
        known: dict[str, str] = {}
        for name in inner:
            short = name.removeprefix(f"{use.name}.")
            known[short] = name
            parsed = parse_op(self._ops[name])
            values = parsed.defines(short) if parsed is not None else ()
            if isinstance(parsed, UseOp) and parsed.use in self._expansion.blocks:
                values = tuple(f"{short}.{value}" for value in self._expansion.blocks[parsed.use].outputs)
            known |= {value: f"{use.name}.{value}" for value in values}
        self._check_block(use, block, known)
        stopped: dict[str, str] = {}
        for short, name in known.items():
            known[short] = self._renamed.get(name, name)  # the use around this one makes it a constant
            if op.stop and short in block.outputs:
                stopped[known[short]] = self._renamed[name] = UNSTOPPED.format(known[short])
                known[short] = self._renamed[name]
        inputs = self._match_inputs(use, op, block, path)
        self._check_given(use, op, path)
        given = self._follow_uses({key: written[key] for key in COMMON if key in written})
        return _Scope(use=use, block=block, op=op, given=given, known=known, inputs=inputs, stopped=stopped)

    def _check_block(self, use: Use, block: BlockSpec, known: Mapping[str, str]) -> None:
        """Report outputs that no op of a block makes, and inputs that are ops or values of it, too."""
        path: Path = ("blocks", use.block)
        for index, value in enumerate(block.outputs):
            if value not in known:
                message, label = f"the block '{use.block}' has no value '{value}'", did_you_mean(value, known)
                help = "name a value of its ops"
                self._unsound.add(use.name)
                self._report("GS064", message, (*path, "outputs", index), label=label, help=help)
        for index, name in enumerate(block.inputs or ()):
            if name in known:
                message = f"'{name}' is an input of the block '{use.block}', and an op or a value of it, too"
                self._report("GS064", message, (*path, "inputs", index), help="rename one of them")

    def _check_given(self, use: Use, op: UseOp, path: Path) -> None:
        """Report inputs that nothing declares, and models in place of ones that no op of the block names."""
        for key, name in op.inputs.references():
            if use.inside is not None or name in self._declared:  # names within a block are known only later
                continue
            wanted, remedy = WANTED["value"], mend_name(name)
            message = f"`inputs` of op '{use.name}' names '{name}', which is not declared; expected {wanted.noun}"
            label = "" if remedy else did_you_mean(name, self._declared)
            self._report(wanted.code, message, (*path, "inputs", key), label=label, help=remedy or wanted.help)
        # Those of the blocks that it uses are among its copies.
        inner = (parse_op(self._ops[name]) for name in self._expansion.copies if name.startswith(f"{use.name}."))
        named = dict.fromkeys(each.name for op in inner if op is not None for each in op.references())
        for key in op.models:
            if key not in named:
                message, models = f"no op of the block '{use.block}' names '{key}'", [*filter(self._models.get, named)]
                help = f"it names {enumerate_names(models)}" if models else "leave it out"
                place, label = (*path, "models", key), did_you_mean(key, models)
                self._report("GS064", message, place, label=label, help=help, at_key=True)

    @cached_property
    def _declared(self) -> frozenset[str]:
        """All names of the document, in any role, and the outputs of its uses."""
        names = [*self._models]
        for section in ("inputs", "state"):
            found = self._data.get(section)
            names += found if isinstance(found, dict) else ()
        for name, data in self._ops.items():
            op = parse_op(data)
            names += (name, *(op.defines(name) if op is not None else ()))
        for use in self._expansion.uses:
            names += (f"{use.name}.{value}" for value in self._expansion.blocks[use.block].outputs)
        return frozenset(names)

    def _match_inputs(self, use: Use, op: UseOp, block: BlockSpec, path: Path) -> Mapping[str, Plain]:
        """Return what a use gives by the names of the block's inputs; report what is missing, and what it has not."""
        found: dict[str, Plain] = {}
        names = tuple(block.inputs or ())
        takes = f"'{use.block}' takes {enumerate_names(names)}" if names else f"'{use.block}' takes no inputs"
        data = self._ops[use.name]
        written = data.get("inputs") if isinstance(data, dict) else None
        given: dict[int | str, Plain] = {} if written is None else {0: written}
        if isinstance(written, dict):
            given = {**written}
        elif isinstance(written, list):
            given = dict[int | str, Plain](enumerate(written))
        for key, operand in given.items():
            if isinstance(key, int) and key >= len(names):
                message = f"the block '{use.block}' has no input number {key + 1}"
                self._report("GS064", message, (*path, "inputs", key), help=takes)
                continue
            name = names[key] if isinstance(key, int) else key
            if name not in names:
                message, label = f"the block '{use.block}' has no input '{name}'", did_you_mean(name, names)
                self._report("GS064", message, (*path, "inputs", key), label=label, help=takes, at_key=True)
                found |= dict.fromkeys(closest(name, names, 1), operand)
            found[name] = operand
        for name in names:
            if name not in found:
                message = f"'{use.name}' does not give the input '{name}' of the block '{use.block}'"
                self._report("GS064", message, (*path, "inputs"), help=takes)
        return found

    def _bind(self, name: str, scope: _Scope) -> Plain:
        """Return a copied op with its names bound, and with the common fields of its use."""
        op, data = parse_op(self._ops[name]), self._ops[name]
        if op is None or not isinstance(data, dict):
            try:  # its names are not bound, so nothing else is checked
                check_part(_Ops, {"ops": {name: self._ops[name]}}, self._document)
            except SpecError as error:
                self._problems.extend(error.diagnostics)
            return data
        for reference in op.references():
            data = _put(data, reference.path, self._resolve(reference, name, scope))
        data = self._follow_uses(data)
        if isinstance(op, UseOp):  # what a use replaces is replaced in the blocks that it holds, too
            named = data.get("models")
            inner = named if isinstance(named, dict) else {}
            models: dict[str, Plain] = {**scope.op.models, **{key: inner[key] for key in op.models}}
            held: dict[str, Plain] = {**data, "models": models}
            data = held
        if "outputs" in data:
            data = {**data, "outputs": _rename(data["outputs"], scope.known)}
        if isinstance(expr := data.get("expr"), str):
            data = {**data, "expr": scope.known[expr]}
        for key, value in scope.given.items():
            if not self._is_held(key, name, scope.use):
                continue
            if key == "after":
                after: list[Plain] = [*_listed(data.get("after") or []), *_listed(value)]
                following: dict[str, Plain] = {**data, "after": after}
                data = following
            elif key in data:
                short = name.removeprefix(f"{scope.use.name}.")
                message = f"`{key}` of '{scope.use.name}' holds for all ops of its block, but '{short}' has its own"
                self._report("GS064", message, ("ops", scope.use.name, key), help="write it once", at_key=True)
            else:
                data = {**data, key: value}
        return data

    def _is_held(self, field: str, name: str, use: Use) -> bool:
        """Return whether a common field of a use holds for an op of its block.

        A clock is for the ops that write, if there are some. The others run where these need them: with a clock of its
        own a loss would be a lazy term.
        """
        return field not in CLOCKS or use.name not in self._writing or name in self._writing

    def _resolve(self, reference: Reference, name: str, scope: _Scope) -> Plain:
        """Return what a name in a block means for a use of it."""
        if reference.name in scope.known:
            return scope.known[reference.name]
        if reference.name in scope.inputs:
            return scope.inputs[reference.name]
        if reference.role in MODELS or reference.name in self._models:
            return scope.op.models.get(reference.name, reference.name)
        states = self._data.get("state")
        is_state = reference.role == "state" or (isinstance(states, dict) and reference.name in states)
        if is_state or reference.name in scope.block.inputs:
            return reference.name
        message = f"the block '{scope.use.block}' has no '{reference.name}'"
        label = did_you_mean(reference.name, (*scope.known, *scope.inputs))
        help = "a block reads its inputs and its own ops: add it to `inputs`, and let every use give it"
        self._report("GS065", message, ("ops", name, *reference.path), label=label, help=help)
        return reference.name

    @property
    def _models(self) -> Mapping[str, Plain]:
        models = self._data.get("models")
        return models if isinstance(models, dict) else {}

    def _bind_outside(self, name: str) -> Plain:
        """Return an op outside of blocks; `after` a use is after all its ops. Report what a block keeps to itself."""
        data, op = self._ops[name], parse_op(self._ops[name])
        if op is None or not isinstance(data, dict):
            return data
        for reference in op.references():
            use, _, inner = reference.name.partition(".")
            if use in self._scopes and reference.role not in ("op", "update"):
                block = self._scopes[use].block
                if inner not in block.outputs and use not in self._unsound:
                    message = f"'{inner}' of '{use}' is not an output of its block"
                    help = f"the block gives {enumerate_names(f'{use}.{each}' for each in block.outputs)}"
                    label = did_you_mean(inner, block.outputs)
                    if not inner:
                        message = f"'{use}' uses a block, and is no value itself"
                    self._report("GS065", message, ("ops", name, *reference.path), label=label, help=help)
        return self._follow_uses(data)

    def _follow_uses(self, data: dict[str, Plain]) -> dict[str, Plain]:
        """Return an op that is after all ops of a use where it is after the use."""
        uses = self._names
        written = _listed(data.get("after") or [])
        if uses.isdisjoint(each for each in written if isinstance(each, str)):
            return data
        after: list[Plain] = []
        for each in written:
            copies = [name for name in self._expansion.copies if each in uses and name.startswith(f"{each}.")]
            after += [self._renamed.get(name, name) for name in copies if name not in uses] if each in uses else [each]
        return {**data, "after": after}

    def _report(self, code: str, message: str, path: Path, *, help: str, label: str = "", at_key: bool = False) -> None:
        document = self._document
        span = document.key_span(path) if at_key else document.value_span(path)
        self._problems.append(Diagnostic(code=code, message=message, span=span, label=label, help=help))


def parse_op(data: Plain) -> OpBase | None:
    """Return an op; None for what is none, which is reported where all ops are read."""
    if not isinstance(data, dict):
        return None
    kinds = find_kinds(data)
    kind = UseOp if "use" in data and not kinds else KINDS.get(kinds[0]) if len(kinds) == 1 else None
    try:
        return None if kind is None else kind.model_validate(data)
    except ValidationError:
        return None


def _put(data: dict[str, Plain], path: Path, value: Plain) -> dict[str, Plain]:
    """Return an op with another value at a path; one that stands alone in place of a list is replaced itself."""

    def put(node: Plain, rest: Path) -> Plain:
        """Return a part of the op with the other value at the rest of the path."""
        if not rest or isinstance(node, str):
            return value
        if isinstance(node, list):
            items: list[Plain] = [put(each, rest[1:]) if index == rest[0] else each for index, each in enumerate(node)]
            return items
        assert isinstance(node, dict)
        changed: dict[str, Plain] = {**node, str(rest[0]): put(node[str(rest[0])], rest[1:])}
        return changed

    found = put(data, path)
    assert isinstance(found, dict)
    return found


def _rename(outputs: Plain, known: Mapping[str, str]) -> Plain:
    """Return the outputs of an op under the names of its copy."""
    match outputs:
        case str():
            return known.get(outputs, outputs)
        case list():
            return [_rename(each, known) for each in outputs]
        case dict():
            taps: dict[str, Plain] = {known.get(name, name): each for name, each in outputs.items()}
            return taps
        case _:
            return outputs


def _listed(value: Plain) -> list[Plain]:
    """Return a list, or one name as a list of one."""
    return value if isinstance(value, list) else [value]
