"""Blocks become ops: every use of a block is replaced by copies of its ops, named `use.op`.

This takes two passes, because interpolation comes between them. :func:`copy_blocks` copies the ops of a block below the
name of every use, with the constants that the use gives. :func:`bind_uses` then reads the copies, whose variables are
replaced by then, and gives the names in them their meaning: an op or value of the block, an input that the use gives,
or a model of the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from pydantic import BaseModel, ValidationError

from graphspec.check.schema_errors import explain_validation
from graphspec.declare.blocks import BlockSpec, UseOp
from graphspec.declare.graph import Ops, find_kinds
from graphspec.declare.ops import KINDS
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.limits import MOST_PROBLEMS, Limits
from graphspec.read.interpolation import spell
from graphspec.read.source import Document, Path, Place, Plain
from graphspec.words import did_you_mean, enumerate_names

STANDARD = Limits()
COMMON = tuple(each for each in OpBase.model_fields if each != "doc")
"""The fields of a use that hold for all ops of its block."""
MODELS = frozenset({"model", "source"})
"""What a reference may name that a block has not: models are the document's."""
UNSTOPPED = "{}.unstopped"
"""The name of a value whose own name its constant has taken."""
_TOKEN = re.compile(r"\$\$\{|\$\{(?P<name>[^{}]*)\}")


class _Blocks(BaseModel):
    blocks: dict[str, BlockSpec]


class _Uses(BaseModel):
    ops: dict[str, UseOp]


class _Ops(BaseModel):
    ops: Ops


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A use of a block: the path of its op as written, the name of its copy, and the block."""

    name: str
    path: Path
    block: str
    inside: Use | None = None
    """The use whose block holds this one."""

    @property
    def depth(self) -> int:
        """Return how many uses it is inside."""
        return 0 if self.inside is None else 1 + self.inside.depth


class Moved(Mapping[Path, Place]):
    """The places of a document with copies: those of a copy are where the original stands, and say who uses it."""

    def __init__(self, places: Mapping[Path, Place], origins: Mapping[str, tuple[Path, Use]]) -> None:
        self._places = places
        self._origins = origins

    def __getitem__(self, path: Path) -> Place:
        found = self._origins.get(str(path[1])) if len(path) > 1 and path[0] == "ops" else None
        if found is None:
            return self._places[path]
        origin, use = found
        given = (*use.path, *path[2:])
        is_given = len(path) > 2 and path[2] in COMMON and (*origin, *path[2:]) not in self._places
        place = self._places[given if is_given else (*origin, *path[2:])]
        via = tuple(self._tell(each) for each in _outwards(use))
        key = None if place.key is None else replace(place.key, via=via)
        return Place(key=key, value=replace(place.value, via=via))

    def _tell(self, use: Use) -> str:
        span = self._places[use.path].key
        assert span is not None
        return f"'{use.name}' uses the block '{use.block}' at {span.place}"

    def __iter__(self) -> Iterator[Path]:
        yield from self._places
        for name, (origin, _) in self._origins.items():
            length = len(origin)
            yield from (("ops", name, *path[length:]) for path in self._places if path[:length] == origin)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _outwards(use: Use | None) -> Iterator[Use]:
    while use is not None:
        yield use
        use = use.inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """A document whose blocks are copied, and the uses that the copies belong to."""

    document: Document
    uses: tuple[Use, ...] = ()
    """Outer ones first."""
    copies: Mapping[str, Use] = field(default_factory=dict[str, Use])
    """By the name of every copied op: the use it is of."""
    origins: Mapping[str, tuple[Path, Use]] = field(default_factory=dict[str, tuple[Path, Use]])
    """By the name of every copied op: where the original stands, and the use."""
    blocks: Mapping[str, BlockSpec] = field(default_factory=dict[str, BlockSpec])
    places: Mapping[Path, Place] = field(default_factory=dict[Path, Place])
    """Those of the document as written."""


def copy_blocks(document: Document, *, limits: Limits = STANDARD) -> Expansion:
    """Return a document in which the ops of blocks stand below every use of them.

    Raises SpecError for blocks and uses that cannot be read, unknown blocks, blocks that use each other, and a result
    over the limits.
    """
    data = document.data
    ops = data.get("ops") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(ops, dict) or not ("blocks" in data or _find_uses(ops)):
        return Expansion(document=document)
    blocks = data.get("blocks", {})
    _validate(_Blocks, {"blocks": blocks}, document)
    assert isinstance(blocks, dict)
    return _Copier(document, blocks, limits).run(ops)


def _find_uses(ops: Mapping[str, Plain]) -> list[str]:
    """Return the ops that stand for blocks."""
    return [name for name, op in ops.items() if isinstance(op, dict) and "use" in op and not find_kinds(op)]


def _validate(model: type[BaseModel], data: Mapping[str, Plain], document: Document) -> None:
    """Raise SpecError with what is wrong in a part of a document."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        raise SpecError(explain_validation(error, replace(document, data={**data}), model), document.texts) from None


class _Copier:
    """Copies ops, counts what it makes, and knows which uses it is inside."""

    def __init__(self, document: Document, blocks: Mapping[str, Plain], limits: Limits) -> None:
        self._document = document
        self._blocks = blocks
        self._limits = limits
        self._nodes = 0
        self._ops: dict[str, Plain] = {}
        self._uses: list[Use] = []
        self._copies: dict[str, Use] = {}
        self._origins: dict[str, tuple[Path, Use]] = {}

    def run(self, ops: Mapping[str, Plain]) -> Expansion:
        """Return the document with the copies, each behind its use."""
        names = set(_find_uses(ops))
        for name, op in ops.items():
            self._ops[name] = op
            if name in names:
                self._copy_block(name, op, ("ops", name), None)
        assert isinstance(self._document.data, dict)
        data: dict[str, Plain] = {key: each for key, each in self._document.data.items() if key != "blocks"}
        places = Moved(self._document.places, self._origins)
        document = replace(self._document, data={**data, "ops": self._ops}, places=places)
        return Expansion(
            document=document,
            uses=tuple(self._uses),
            copies=self._copies,
            origins=self._origins,
            blocks={name: BlockSpec.model_validate(each) for name, each in self._blocks.items()},
            places=self._document.places,
        )

    def _copy_block(self, name: str, op: Plain, path: Path, inside: Use | None) -> None:
        """Copy the ops of the block that an op uses."""
        assert isinstance(op, dict)
        block = op["use"]
        if not isinstance(block, str) or block not in self._blocks:
            label = did_you_mean(block, self._blocks) if isinstance(block, str) else ""
            known = f"blocks are {enumerate_names(self._blocks)}" if self._blocks else "declare it under `blocks`"
            message = f"there is no block '{block}'" if isinstance(block, str) else "`use` takes the name of a block"
            self._fail("GS062", message, (*path, "use"), label=label, help=known, use=inside)
        use = Use(name=name, path=path, block=block, inside=inside)
        around = [each.block for each in _outwards(inside)]
        if block in around:
            way = " -> ".join([*reversed(around[: around.index(block) + 1]), block])
            message = f"blocks use each other: {way}"
            self._fail("GS063", message, (*path, "use"), help="take one of the uses out", use=inside)
        declared = self._blocks[block]
        assert isinstance(declared, dict)
        defaults, given = declared.get("args", {}), op.get("args", {})
        known = defaults if isinstance(defaults, dict) else {}
        constants = {**known, **(given if isinstance(given, dict) else {})}
        for key in constants:
            if key not in known:
                message = f"the block '{block}' has no constant '{key}'"
                help = f"its `args` are {enumerate_names(known)}" if known else "declare it in its `args`"
                self._fail(
                    "GS064", message, (*path, "args", key), label=did_you_mean(key, known), help=help, use=inside
                )
        self._uses.append(use)
        ops = declared["ops"]
        assert isinstance(ops, dict)
        names = set(_find_uses(ops))
        for inner, each in ops.items():
            copy, origin = f"{name}.{inner}", ("blocks", block, "ops", inner)
            self._ops[copy] = made = self._replace(each, constants, origin)
            self._copies[copy], self._origins[copy] = use, (origin, use)
            if inner in names:
                self._copy_block(copy, made, origin, use)

    def _replace(self, value: Plain, constants: Mapping[str, Plain], path: Path) -> Plain:
        """Return a copy in which the constants of a block are replaced; variables stay as they are."""
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            message = f"with its blocks the document has more than {self._limits.nodes:,} values"
            self._fail("GS035", message, path, help="use fewer blocks inside each other", use=None)
        match value:
            case str():
                whole = _TOKEN.fullmatch(value)
                if whole is not None and whole["name"] in constants:
                    return constants[whole["name"]]
                return _TOKEN.sub(lambda found: self._spell(found, constants, path), value)
            case dict():
                return {key: self._replace(each, constants, (*path, key)) for key, each in value.items()}
            case list():
                return [self._replace(each, constants, (*path, index)) for index, each in enumerate(value)]
            case _:
                return value

    def _spell(self, found: re.Match[str], constants: Mapping[str, Plain], path: Path) -> str:
        """Return a constant as a part of a text; what is none is left as it is."""
        name = found["name"]
        if name not in constants:
            return found.group()
        value = constants[name]
        if isinstance(value, dict | list):
            message = f"the constant '{name}' is a collection and cannot be a part of a text"
            self._fail("GS033", message, path, help=f"let `{found.group()}` stand alone", use=None)
        return spell(value)

    def _fail(self, code: str, message: str, path: Path, *, help: str, use: Use | None, label: str = "") -> NoReturn:
        places = Moved(self._document.places, {})
        span = replace(self._document, places=places).value_span(path)
        span = replace(span, via=tuple(f"'{each.name}' uses the block '{each.block}'" for each in _outwards(use)))
        problem = Diagnostic(code=code, message=message, span=span, label=label, help=help)
        raise SpecError([problem], self._document.texts)


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
        self._constants: dict[str, Plain] = {}
        """Ops that make outputs constants, by their names."""
        self._scopes: dict[str, _Scope] = {}
        self._names = frozenset(use.name for use in expansion.uses)
        writes = {name: use for name, use in expansion.copies.items() if _is_write(self._ops[name])}
        self._writing = frozenset((*writes, *(each.name for use in writes.values() for each in _outwards(use))))
        """The ops that write, and the uses of blocks in which one does."""
        self._problems: list[Diagnostic] = []

    def run(self) -> Document:
        """Return the flat document."""
        for use in self._expansion.uses:
            inner = [name for name, each in self._expansion.copies.items() if each == use]
            self._scopes[use.name] = scope = self._open(use, inner)
            for name in inner:
                self._ops[name] = self._bind(name, scope)
            for value in scope.block.outputs if scope.op.stop else ():
                name = f"{use.name}.{value}"
                self._constants[name] = {"call": "stop", "inputs": scope.known[value], **_without_after(scope.given)}
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
        _validate(_Uses, {"ops": {use.name: written}}, self._document)
        assert isinstance(written, dict)
        op, block = UseOp.model_validate(written), self._expansion.blocks[use.block]
        path: Path = ("ops", use.name)
        known: dict[str, str] = {}
        for name in inner:
            short = name.removeprefix(f"{use.name}.")
            known[short] = name
            parsed = _parse(self._ops[name])
            values = parsed.defines(short) if parsed is not None else ()
            if isinstance(parsed, UseOp) and parsed.use in self._expansion.blocks:
                values = tuple(f"{short}.{value}" for value in self._expansion.blocks[parsed.use].outputs)
            known |= {value: f"{use.name}.{value}" for value in values}
        for index, value in enumerate(block.outputs):
            if value not in known:
                message = f"the block '{use.block}' has no value '{value}'"
                label = did_you_mean(value, known)
                self._report("GS064", message, ("blocks", use.block, "outputs", index), label=label, help=OUTPUTS)
        if op.stop:
            for value in set(block.outputs) & known.keys():
                known[value] = UNSTOPPED.format(known[value])
                if f"{use.name}.{value}" in inner:
                    self._renamed[f"{use.name}.{value}"] = known[value]
        inputs = self._match_inputs(use, op, block, path)
        given = self._follow_uses({key: written[key] for key in COMMON if key in written})
        return _Scope(use=use, block=block, op=op, given=given, known=known, inputs=inputs)

    def _match_inputs(self, use: Use, op: UseOp, block: BlockSpec, path: Path) -> Mapping[str, Plain]:
        """Return what a use gives by the names of the block's inputs; report what is missing, and what it has not."""
        found: dict[str, Plain] = {}
        names = tuple(block.inputs or ())
        takes = f"'{use.block}' takes {enumerate_names(names)}" if names else f"'{use.block}' takes no inputs"
        written = _read_inputs(self._ops[use.name])
        for key, operand in written.items():
            if isinstance(key, int) and key >= len(names):
                message = f"the block '{use.block}' has no input number {key + 1}"
                self._report("GS064", message, (*path, "inputs", key), help=takes)
                continue
            name = names[key] if isinstance(key, int) else key
            if name not in names:
                message, label = f"the block '{use.block}' has no input '{name}'", did_you_mean(name, names)
                self._report("GS064", message, (*path, "inputs", key), label=label, help=takes)
            found[name] = operand
        for name in names:
            if name not in found:
                message = f"'{use.name}' does not give the input '{name}' of the block '{use.block}'"
                self._report("GS064", message, (*path, "inputs"), help=takes)
        return found

    def _bind(self, name: str, scope: _Scope) -> Plain:
        """Return a copied op with its names bound, and with the common fields of its use."""
        op, data = _parse(self._ops[name]), self._ops[name]
        if op is None or not isinstance(data, dict):
            self._explain(name)
            return data
        for reference in op.references():
            data = _put(data, reference.path, self._resolve(reference, name, scope))
        data = self._follow_uses(data)
        if isinstance(op, UseOp):  # what a use replaces is replaced in the blocks that it holds, too
            models: dict[str, Plain] = {**scope.op.models, **{key: _find_model(data, key) for key in op.models}}
            held: dict[str, Plain] = {**data, "models": models}
            data = held
        if "outputs" in data:
            data = {**data, "outputs": _rename(data["outputs"], scope.known)}
        for key, value in scope.given.items():
            if key in CLOCKS and scope.use.name in self._writing and name not in self._writing:
                continue  # it runs where a write needs it; with a clock of its own a loss would be a lazy term
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

    def _resolve(self, reference: Reference, name: str, scope: _Scope) -> Plain:
        """Return what a name in a block means for a use of it."""
        if reference.name in scope.known:
            return scope.known[reference.name]
        if reference.name in scope.inputs:
            return scope.inputs[reference.name]
        if reference.role in MODELS or reference.name in self._models:
            return scope.op.models.get(reference.name, reference.name)
        if reference.role == "state" or reference.name in scope.block.inputs:
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
        data, op = self._ops[name], _parse(self._ops[name])
        if op is None or not isinstance(data, dict):
            return data
        for reference in op.references():
            use, _, inner = reference.name.rpartition(".")
            if use in self._scopes and reference.role not in ("op", "update"):
                block = self._scopes[use].block
                if inner not in block.outputs:
                    message = f"'{inner}' of '{use}' is not an output of its block"
                    help = f"the block gives {enumerate_names(block.outputs)}"
                    label = did_you_mean(inner, block.outputs)
                    self._report("GS065", message, ("ops", name, *reference.path), label=label, help=help)
        return self._follow_uses(data)

    def _explain(self, name: str) -> None:
        """Report what is wrong with a copied op that cannot be read: its names are not bound, so nothing else is."""
        try:
            _validate(_Ops, {"ops": {name: self._ops[name]}}, self._document)
        except SpecError as error:
            self._problems.extend(error.diagnostics)

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


OUTPUTS = "name a value of its ops"
CLOCKS = frozenset({"every", "start", "until"})
WRITES = frozenset({"update", "ema", "copy", "assign"})


def _is_write(data: Plain) -> bool:
    """Return whether an op writes."""
    return isinstance(data, dict) and not WRITES.isdisjoint(find_kinds(data))


def _parse(data: Plain) -> OpBase | None:
    """Return an op; None for what is none, which is reported where all ops are read."""
    if not isinstance(data, dict):
        return None
    kinds = find_kinds(data)
    kind = UseOp if "use" in data and not kinds else KINDS.get(kinds[0]) if len(kinds) == 1 else None
    try:
        return None if kind is None else kind.model_validate(data)
    except ValidationError:
        return None


def _read_inputs(data: Plain) -> Mapping[int | str, Plain]:
    """Return the inputs of a use as written, by position or name."""
    written = data.get("inputs") if isinstance(data, dict) else None
    match written:
        case None:
            return {}
        case dict():
            return {**written}
        case list():
            return dict(enumerate(written))
        case _:
            return {0: written}


def _put(data: dict[str, Plain], path: Path, value: Plain) -> dict[str, Plain]:
    """Return an op with another value at a path; one that stands alone in place of a list is replaced itself."""

    def put(node: Plain, rest: Path) -> Plain:
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


def _find_model(data: Mapping[str, Plain], key: str) -> Plain:
    """Return the model that a use puts in place of one."""
    models = data["models"]
    assert isinstance(models, dict)
    return models[key]


def _listed(value: Plain) -> list[Plain]:
    """Return a list, or one name as a list of one."""
    return value if isinstance(value, list) else [value]


def _without_after(given: Mapping[str, Plain]) -> dict[str, Plain]:
    return {key: value for key, value in given.items() if key != "after"}
