"""Blocks become ops, first pass: every use of a block gets copies of its ops, named `use.op`.

So does every iteration of an op that repeats its ops, and every alternative of one that chooses: `critic.2.op`.

This takes two passes, because variables are replaced between them. :func:`copy_blocks` copies the ops of a block below
the name of every use, with the constants that the use gives. :func:`graphspec.expand.bindings.bind_uses` then reads the
copies and gives the names in them their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NoReturn, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from graphspec.check.schema_errors import explain_validation
from graphspec.declare.blocks import CONTAINERS, BlockSpec, RepeatOp
from graphspec.declare.graph import find_kinds
from graphspec.declare.library import CALLS
from graphspec.declare.ops.base import OpBase
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.limits import Limits
from graphspec.read.interpolation import interpolate, spell
from graphspec.read.source import Document, Path, Place, Plain
from graphspec.words import did_you_mean, enumerate_names

STANDARD = Limits()
COMMON = tuple(each for each in OpBase.model_fields if each not in ("doc", "within"))
"""The fields of a use that hold for all ops of its block."""
_TOKEN = re.compile(r"\$\$\{|\$\{(?P<name>[^{}]*)\}")


class _Blocks(BaseModel, defer_build=True):
    blocks: dict[str, BlockSpec]


class Container(Struct, frozen=True, kw_only=True):
    """An op that holds its own ops, which it repeats or chooses between: its name, and its path as written."""

    name: str
    path: Path
    kind: str
    inside: Use | None = None
    """The use or part that holds it."""


class Use(Struct, frozen=True, kw_only=True):
    """A use of a block, or a part of a container: the path of its op as written, its name, and the block."""

    name: str
    path: Path
    block: str = ""
    inside: Use | None = None
    """The use or part that holds this one."""
    of: Container | None = None
    """What this is a part of."""
    number: int = 0
    """Which part, from 1."""

    @property
    def op(self) -> str:
        """The name of the op that uses a block or has parts."""
        return self.name if self.of is None else self.of.name


Origin: TypeAlias = tuple[Path, Use | None]
"""Where the original of an op stands, and the innermost use that it is a copy for."""


class Moved(Mapping[Path, Place]):
    """The places of a document with copies: those of a copy are where the original stands, and say who uses it."""

    def __init__(self, places: Mapping[Path, Place], origins: Mapping[str, Origin]) -> None:
        self._places = places
        self._origins = origins

    def __getitem__(self, path: Path) -> Place:
        found = self._origins.get(str(path[1])) if len(path) > 1 and path[0] == "ops" else None
        if found is None:
            return self._places[path]
        origin, use = found
        is_common = use is not None and len(path) > 2 and path[2] in COMMON
        given = (*use.path, *path[2:]) if use is not None and is_common else origin
        place = self._places[given if (*origin, *path[2:]) not in self._places and is_common else (*origin, *path[2:])]
        via = tuple(tell_use(each, self._places) for each in find_outer(use))
        key = None if place.key is None else replace(place.key, via=via)
        return Place(key=key, value=replace(place.value, via=via))

    def __iter__(self) -> Iterator[Path]:
        yield from self._places
        for name, (origin, _) in self._origins.items():
            length = len(origin)
            yield from (("ops", name, *path[length:]) for path in self._places if path[:length] == origin)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def tell_use(use: Use, places: Mapping[Path, Place]) -> str:
    """Return in words which op uses a block, or which part of one it is, and where."""
    span = places[use.path].key
    assert span is not None
    if use.of is not None:
        noun = "iteration" if use.of.kind == "repeat" else "alternative"
        return f"{noun} {use.number} of '{use.of.name}' at {span.place}"
    return f"'{use.name}' uses the block '{use.block}' at {span.place}"


def find_outer(use: Use | None) -> Iterator[Use]:
    """Yield a use and those around it, from the inside out."""
    while use is not None:
        yield use
        use = use.inside


def name_outer(use: Use) -> Iterator[str]:
    """Yield the names of a use and those around it, and of the ops that they are parts of."""
    for each in find_outer(use):
        yield from (each.name, each.of.name) if each.of is not None else (each.name,)


class Expansion(Struct, frozen=True, kw_only=True):
    """A document whose blocks are copied, and the uses that the copies belong to."""

    document: Document
    uses: tuple[Use, ...] = ()
    """Outer ones first."""
    containers: tuple[Container, ...] = ()
    """Ops that hold their own ops; outer ones first."""
    copies: Mapping[str, Use] = {}
    """By the name of every copied op: the use it is of."""
    origins: Mapping[str, Origin] = {}
    """By the name of every copied op: where the original stands, and the use."""
    blocks: Mapping[str, BlockSpec] = {}
    places: Mapping[Path, Place] = {}
    """Those of the document as written."""


def copy_blocks(document: Document, *, limits: Limits = STANDARD) -> Expansion:
    """Return a document in which the ops of blocks stand below every use of them.

    Raises SpecError for blocks and uses that cannot be read, unknown blocks, blocks that use each other, and a result
    over the limits.
    """
    data = document.data
    ops = data.get("ops") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(ops, dict):  # reported where it is read
        rest = {key: each for key, each in data.items() if key != "blocks"} if isinstance(data, dict) else data
        return Expansion(document=replace(document, data=rest))
    if not ("blocks" in data or find_holders(ops)):
        return Expansion(document=document)
    blocks = data.get("blocks", {})
    check_part(_Blocks, {"blocks": blocks}, document)
    assert isinstance(blocks, dict)
    return _Copier(document, blocks, limits).run(ops)


def find_holders(ops: Mapping[str, Plain]) -> list[str]:
    """Return the ops that become others: uses of blocks, and containers."""
    return [name for name, op in ops.items() if isinstance(op, dict) and find_holder(op) and not find_kinds(op)]


def find_holder(op: Mapping[str, Plain]) -> str:
    """Return the key by which an op becomes others; nothing where it does not."""
    return next((key for key in CONTAINERS if key in op), "")


def check_part(model: type[BaseModel], data: Mapping[str, Plain], document: Document) -> None:
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
        self._containers: list[Container] = []
        self._copies: dict[str, Use] = {}
        self._origins: dict[str, Origin] = {}

    def run(self, ops: Mapping[str, Plain]) -> Expansion:
        """Return the document with the copies, each after its use."""
        names = set(find_holders(ops))
        for name, op in ops.items():
            self._ops[name] = op
            if name in names:
                self._open(name, op, ("ops", name), None)
            called = op.get("call") if isinstance(op, dict) else None
            if isinstance(called, str) and called in self._blocks and called not in CALLS:
                message = f"'{called}' is a block, and no function"
                self._fail("GS064", message, ("ops", name, "call"), help=f"write `use: {called}`", use=None)
        assert isinstance(self._document.data, dict)
        data: dict[str, Plain] = {key: each for key, each in self._document.data.items() if key != "blocks"}
        places = Moved(self._document.places, self._origins)
        document = replace(self._document, data={**data, "ops": self._ops}, places=places)
        return Expansion(
            document=document,
            uses=tuple(self._uses),
            containers=tuple(self._containers),
            copies=self._copies,
            origins=self._origins,
            blocks={name: BlockSpec.model_validate(each) for name, each in self._blocks.items()},
            places=self._document.places,
        )

    def _open(self, name: str, op: Plain, path: Path, inside: Use | None) -> None:
        """Copy the ops that an op becomes."""
        assert isinstance(op, dict)
        kind = find_holder(op)
        if kind == "use":
            self._copy_block(name, op, path, inside)
            return
        container = Container(name=name, path=path, kind=kind, inside=inside)
        self._containers.append(container)
        for number, place in enumerate(self._find_parts(op, container), start=1):
            held: Plain = op
            for key in place:
                held = (
                    held.get(str(key)) if isinstance(held, dict) else held[int(key)] if isinstance(held, list) else None
                )
            part = Use(name=f"{name}.{number}", path=path, inside=inside, of=container, number=number)
            self._uses.append(part)  # what holds no ops is reported where its op is read
            self._copy_ops(part, held if isinstance(held, dict) else {}, (*path, *place), {})

    def _find_parts(self, op: Mapping[str, Plain], container: Container) -> list[Path]:
        """Return where the ops of every part of a container stand below it."""
        if container.kind == "choose":
            listed = op["choose"]
            return [("choose", index, "ops") for index in range(len(listed))] if isinstance(listed, list) else []
        if container.kind == "sometimes":
            return [("ops",), ("",)]  # the second has no ops
        assert isinstance(self._document.data, dict)
        # A number of iterations may be a variable, and there are as many copies: it is needed before all others.
        held: dict[str, Plain] = {"vars": self._document.data.get("vars", {}), "repeat": op["repeat"]}
        try:
            found = interpolate(replace(self._document, data=held)).data
            assert isinstance(found, dict)
            count = RepeatOp.model_validate({"repeat": found["repeat"], "ops": op.get("ops")}).most
        except (SpecError, ValidationError):
            return [("ops",)]  # reported where the document, or the op, is read
        return [("ops",)] * count

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
        around = [each.block for each in find_outer(inside) if each.block]
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
                place, label = (*path, "args", key), did_you_mean(key, known)
                self._fail("GS064", message, place, label=label, help=help, use=inside, at_key=True)
        self._uses.append(use)
        ops = declared["ops"]
        assert isinstance(ops, dict)
        self._copy_ops(use, ops, ("blocks", block, "ops"), constants)

    def _copy_ops(self, use: Use, ops: Mapping[str, Plain], path: Path, constants: Mapping[str, Plain]) -> None:
        """Copy ops that stand at a path, with constants in place of their names."""
        names = set(find_holders(ops))
        for inner, each in ops.items():
            copy, origin = f"{use.name}.{inner}", (*path, inner)
            self._ops[copy] = made = self._replace(each, constants, origin)
            self._copies[copy], self._origins[copy] = use, (origin, use)
            if inner in names:
                self._open(copy, made, origin, use)

    def _replace(self, value: Plain, constants: Mapping[str, Plain], path: Path) -> Plain:
        """Return a copy in which the constants of a block are replaced; variables stay as they are."""
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            message = f"with its blocks the document has more than {self._limits.nodes:,} values"
            self._fail("GS067", message, path, help="use fewer blocks inside each other", use=None)
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
            self._fail("GS064", message, path, help=f"let `{found.group()}` stand alone", use=None)
        return spell(value)

    def _fail(
        self, code: str, message: str, path: Path, *, help: str, use: Use | None, label: str = "", at_key: bool = False
    ) -> NoReturn:
        via = tuple(tell_use(each, self._document.places) for each in find_outer(use))
        found = self._document.key_span(path) if at_key else self._document.value_span(path)
        span = replace(found, via=via)
        problem = Diagnostic(code=code, message=message, span=span, label=label, help=help)
        raise SpecError([problem], self._document.texts)
