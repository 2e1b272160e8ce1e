"""Formulas become ops: every operator and call in an expression is a `call` or a `loss` of its own.

The last one has the name of the op, or `step.loss` for the loss of an update or a gradient; those before are numbered:
`goal.1`. Each says in `expr` of which value's expression it is a part. Variables are replaced afterwards, so an
interpolation is read as a name here, and :mod:`graphspec.expand.fold` calculates
later what is made of numbers alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import BaseModel

from graphspec.declare.formulas import DIFFERENTIATED, IN_CALLS, LOSS, FormulaOp
from graphspec.declare.graph import find_kinds
from graphspec.declare.library import CALLS, LOSSES
from graphspec.diagnostics import Diagnostic, Span, SpecError
from graphspec.expand.copies import check_part, find_holder
from graphspec.expand.plain import put
from graphspec.limits import MOST_PROBLEMS
from graphspec.read.builder import SourceText
from graphspec.read.expressions import (
    CONSTANTS,
    PI,
    VALUES,
    Binary,
    Call,
    Expression,
    ExpressionError,
    Name,
    Node,
    Number,
    Subscript,
    Unary,
    read_expression,
)
from graphspec.read.misreadings import ATTRIBUTES, MODULES, Signatures, explain_attribute
from graphspec.read.source import Document, Path, Place, Plain

OPERATORS: Mapping[str, str] = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "**": "pow",
    "@": "matmul",
    "&": "logical_and",
    "|": "logical_or",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "==": "equal",
    "!=": "not_equal",
}
"""The calls that operators between two values are."""
SIGNS: Mapping[str, str] = {"-": "neg", "~": "logical_not"}
"""The calls that operators before a value are."""
CHAINED = ("+", "*")
"""Operators that one call has for several operands: `a + b + c`."""
PASSED_ON = ("mode", "dataset", "after", "within")
"""The common fields that all ops of an expression have; a clock is for the last one, which the others run for."""
SIGNATURES: Signatures = {
    name: (0 if function.repeats else function.fewest, tuple(option.name for option in function.options))
    for name, function in {**LOSSES, **CALLS}.items()
}
"""The functions that expressions may call."""
_NAME = re.compile(r"\s*([A-Za-z_]|\$\{[^{}]*\})(\w|\.|\$\{[^{}]*\})*\s*", re.ASCII)
_UNREADABLE = "unreadable:expression"
"""The function of a call in place of an expression that cannot be read."""
_INDICATOR = re.compile(r"[>|][-+0-9]*[ \t]*(#[^\n]*)?\n|['\"]")


class _Formulas(BaseModel, defer_build=True):
    ops: dict[str, FormulaOp]


class Overlaid(Mapping[Path, Place]):
    """The places of a document, and those of its expressions' parts, which stand before them."""

    def __init__(self, places: Mapping[Path, Place], parts: Mapping[Path, Place]) -> None:
        self._places = places
        self._parts = parts

    def __getitem__(self, path: Path) -> Place:
        return self._parts[path] if path in self._parts else self._places[path]

    def __contains__(self, path: object) -> bool:
        return path in self._parts or path in self._places

    def __iter__(self) -> Iterator[Path]:
        yield from self._parts
        yield from (path for path in self._places if path not in self._parts)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def expand_formulas(document: Document) -> tuple[Document, tuple[Diagnostic, ...]]:
    """Return a document in which expressions are the ops that they are made of, in blocks too; and the problems.

    What is no expression is set aside (:func:`find_unreadable`), so that the rest can be checked.
    """
    data = document.data
    if not isinstance(data, dict):
        return document, ()
    places: dict[Path, Place] = {}
    problems: list[Diagnostic] = []
    changed: dict[str, Plain] = {}
    models = _find_keys(data, "models")
    if isinstance(ops := data.get("ops"), dict) and any(map(_has_formula, ops.values())):
        names = frozenset(chain(_find_values(data, "inputs"), _find_values(data, "state"), _find_values(data, "ops")))
        known = _Known(values=names, uses=_find_uses(ops), variables=_find_keys(data, "vars"), models=models)
        changed["ops"] = _Expander(document, ("ops",), known, places, problems).run(ops)
    if isinstance(blocks := data.get("blocks"), dict):
        found: dict[str, Plain] = {}
        for name, block in blocks.items():
            found[name] = block
            if isinstance(block, dict) and isinstance(inner := block.get("ops"), dict):
                listed = block.get("inputs")
                inputs = [each for each in (listed if isinstance(listed, list) else [listed]) if isinstance(each, str)]
                names = frozenset(chain(inputs, _find_values(block, "ops")))
                variables = _find_keys(data, "vars") | _find_keys(block, "args")
                known = _Known(values=names, uses=_find_uses(inner), variables=variables, models=models)
                path: Path = ("blocks", name, "ops")
                found[name] = {**block, "ops": _Expander(document, path, known, places, problems).run(inner)}
        changed["blocks"] = found
    if changed:
        document = replace(document, data={**data, **changed}, places=Overlaid(document.places, places))
    return document, tuple(dict.fromkeys(problems[:MOST_PROBLEMS]))


def stand_in(op: Mapping[str, Plain]) -> Plain:
    """Return a call in place of an op whose expression cannot be read; nothing but its outputs is known."""
    outputs = op.get("outputs")
    names = outputs if isinstance(outputs, list) else [outputs]
    return {"call": _UNREADABLE, **({"outputs": outputs} if all(isinstance(each, str) for each in names) else {})}


def find_unreadable(document: Document) -> frozenset[str]:
    """Return the ops of a document whose expressions could not be read, with their outputs."""
    ops = document.data.get("ops") if isinstance(document.data, dict) else None
    unread: dict[str, Plain] = {
        name: op
        for name, op in (ops if isinstance(ops, dict) else {}).items()
        if isinstance(op, dict) and op.get("call") == _UNREADABLE
    }
    return frozenset(_find_values({"ops": unread}, "ops"))


def _has_formula(op: Plain) -> bool:
    """Return whether an op is an expression, has one where a loss is named, or holds such an op."""
    if not isinstance(op, dict):
        return False
    if any(_has_formula(each) for _, ops in find_held(op) for each in ops.values()):
        return True
    return "expr" in op or any(kind in op and is_formula(op.get(key)) for kind, key in DIFFERENTIATED.items())


def find_held(op: Mapping[str, Plain]) -> Iterator[tuple[Path, dict[str, Plain]]]:
    """Yield the ops that an op holds, which it repeats or chooses between, with their path below it."""
    if find_holder(op) in ("", "use") or find_kinds(op):
        return
    listed = op.get("choose")
    choices = enumerate(listed) if isinstance(listed, list) else ()
    places: dict[Path, Plain] = {("ops",): op.get("ops")}
    places |= {("choose", at, "ops"): each.get("ops") for at, each in choices if isinstance(each, dict)}
    for place, held in places.items():
        if isinstance(held, dict):
            yield place, held


def is_formula(text: Plain) -> bool:
    """Return whether a text that names a value is an expression instead."""
    return isinstance(text, str) and bool(text.strip()) and _NAME.fullmatch(text) is None


def _find_values(data: Mapping[str, Plain], section: str) -> Iterator[str]:
    """Yield the names of a section, and the outputs of its ops."""
    found = data.get(section)
    for name, each in found.items() if isinstance(found, dict) else ():
        yield name
        outputs = each.get("outputs") if isinstance(each, dict) else None
        yield from (value for value in (outputs if isinstance(outputs, list) else [outputs]) if isinstance(value, str))


def _find_keys(data: Mapping[str, Plain], section: str) -> frozenset[str]:
    """Return the names that a section declares."""
    found = data.get(section)
    return frozenset(found if isinstance(found, dict) else ())


def _find_uses(ops: Mapping[str, Plain]) -> frozenset[str]:
    """Return the ops that use a block."""
    return frozenset(name for name, op in ops.items() if isinstance(op, dict) and find_holder(op))


class _Known(Struct, frozen=True, kw_only=True):
    """The names that an expression may mention, and those that it is mistaken about."""

    values: frozenset[str]
    uses: frozenset[str]
    variables: frozenset[str]
    models: frozenset[str]


class _Formula(Struct, frozen=True, kw_only=True):
    """An expression that is being made into ops: of which op, the name of its value, its text, and where that is."""

    holder: str
    root: str
    text: str
    path: Path
    """Of the text."""
    given: Mapping[str, Plain]
    """The fields of the last op."""
    made: dict[str, Plain] = {}
    counts: Counter[bool] = field(default_factory=Counter[bool])
    """How many parts there are that come to numbers, and how many others."""

    def name_part(self, *, is_number: bool) -> str:
        """Return the name of the next part; those that come to numbers are counted apart, because they will be gone."""
        self.counts[is_number] += 1
        return f"{self.root}.{'number.' if is_number else ''}{self.counts[is_number]}"


class _Given(Struct, frozen=True, kw_only=True):
    """An option of a call, and where its name and its value are."""

    value: Plain
    key: Node
    place: Node


class _Expander:
    """Makes ops of the expressions of a section."""

    def __init__(
        self,
        document: Document,
        path: Path,
        known: _Known,
        places: dict[Path, Place],
        problems: list[Diagnostic],
    ) -> None:
        self._document, self._path, self._known = document, path, known
        self._places, self._problems = places, problems
        self._texts = {file: SourceText(file=file, content=text) for file, text in document.texts.items()}

    def run(self, ops: Mapping[str, Plain]) -> dict[str, Plain]:
        """Return the ops, those of an expression before the op that it is of."""
        found: dict[str, Plain] = {}
        for name, op in ops.items():
            before = len(self._problems)
            formula = self._find_formula(name, op)
            if formula is None and len(self._problems) > before and isinstance(op, dict):
                found[name] = stand_in(op)
                continue
            if formula is None:
                found[name] = self._expand_held(name, op) if isinstance(op, dict) else op
                continue
            try:
                self._expand(formula)
            except ExpressionError as error:
                span = self._point(formula, error.start, error.end)
                self._problems.append(Diagnostic(code="GS068", message=error.message, span=span, help=error.help))
                formula.made[formula.root] = stand_in(formula.given)
            found |= formula.made
            if formula.root != name:
                assert isinstance(op, dict)
                held: dict[str, Plain] = {**op, str(formula.path[-1]): formula.root}
                found[name] = held
        return found

    def _expand_held(self, name: str, op: dict[str, Plain]) -> Plain:
        """Return an op with the expressions of the ops that it holds expanded: these read everything outside, too."""
        found: Plain = op
        for place, ops in find_held(op):
            if not any(map(_has_formula, ops.values())):
                continue
            values = self._known.values.union(_find_values({"ops": ops}, "ops"))
            uses = self._known.uses | _find_uses(ops)
            known, path = replace(self._known, values=values, uses=uses), (*self._path, name, *place)
            made = _Expander(self._document, path, known, self._places, self._problems).run(ops)
            found = put(found, place, made)
        return found

    def _find_formula(self, name: str, op: Plain) -> _Formula | None:
        """Return the expression that an op has."""
        if not isinstance(op, dict):
            return None
        kinds, path = find_kinds(op), (*self._path, name)
        if "expr" in op:
            if kinds:
                message = f"an op has one kind, found `expr` and `{kinds[0]}`"
                span = self._document.key_span((*path, "expr"))
                help = "split it into two ops, or remove one of the keys"
                self._problems.append(Diagnostic(code="GS052", message=message, span=span, help=help))
                return None
            moved = replace(self._document, places=_Below(self._document.places, self._path[:-1]))
            # A field that names a variable has its value later, and is checked with those of the ops that are made.
            known = {key: each for key, each in op.items() if key == "expr" or "${" not in str(each)}
            try:
                check_part(_Formulas, {"ops": {name: known}}, moved)
            except SpecError as error:
                self._problems.extend(error.diagnostics)
                return None
            text = op["expr"]
            assert isinstance(text, str)
            given = {key: each for key, each in op.items() if key != "expr"}
            return _Formula(holder=name, root=name, text=text, path=(*path, "expr"), given=given)
        for key in (key for kind, key in DIFFERENTIATED.items() if kind in kinds):
            text = op.get(key)
            # A text without quotes ends before a comma: what follows is an unknown key, and reported as such.
            is_cut = any(each is None and field.endswith(")") and "(" not in field for field, each in op.items())
            if isinstance(text, str) and is_formula(text) and not is_cut:
                given = {field: op[field] for field in ("within",) if field in op}
                return _Formula(holder=name, root=LOSS.format(name), text=text, path=(*path, key), given=given)
        return None

    def _expand(self, formula: _Formula) -> None:
        """Make the ops of an expression; raise ExpressionError for what is none."""
        tree = read_expression(formula.text, VALUES, SIGNATURES)
        if isinstance(tree, Name):
            self._check_name(tree)
        if isinstance(tree, Name | Number):
            help = "write its name where it is read" if isinstance(tree, Name) else "write it where it is read"
            what = "a name" if isinstance(tree, Name) else "a number"
            raise ExpressionError(f"this is {what}, and calculates nothing", tree.start, tree.end, help)
        root = (*self._path, formula.root)
        if formula.root != formula.holder:
            span = self._point(formula, 0, len(formula.text))
            self._places[root] = Place(key=span, value=span)
        self._make(tree, formula, formula.root)

    def _make(self, node: Expression, formula: _Formula, name: str | None) -> Plain:
        """Return the operand that a node is; make its op, under a name where it is given one."""
        match node:
            case Number():
                return node.value
            case Name():
                self._check_name(node)
                return CONSTANTS.get(node.name, node.name)
            case Unary():
                return self._add(SIGNS[node.operator], (node.operand,), {}, node, node, formula, name)
            case Binary():
                operands = tuple(_find_operands(node))
                return self._add(OPERATORS[node.operator], operands, {}, node, node, formula, name)
            case Subscript():
                at = Node(start=node.at_start, end=node.at_end)
                given = {"at": _Given(value=node.at, key=at, place=at)}
                return self._add("subscript", (node.operand,), given, node, node, formula, name)
            case Call():
                if node.function.name in self._known.models and node.function.name not in {*CALLS, *LOSSES}:
                    given = f"{{forward: {node.function.name}, inputs: ...}}"
                    message, help = f"'{node.function.name}' is a model", f"call it in an op of its own: `{given}`"
                    raise ExpressionError(message, node.function.start, node.function.end, help)
                options: dict[str, _Given] = {}
                for each in node.options:
                    if each.name in options:
                        raise ExpressionError(f"`{each.name}` repeats", each.start, each.end, "write it once")
                    key = Node(start=each.name_start, end=each.name_start + len(each.name))
                    options[each.name] = _Given(value=each.value, key=key, place=each)
                return self._add(node.function.name, node.arguments, options, node, node.function, formula, name)

    def _check_name(self, node: Name) -> None:
        """Refuse a name that is none of a value, where it is known what was meant."""
        name, (value, dot, attribute) = node.name, node.name.rpartition(".")
        known = self._known
        if name == PI and PI in known.values:
            message = "`pi` is the number in expressions, and there is a value of that name"
            raise ExpressionError(message, node.start, node.end, "rename the value")
        if name in known.values or name in known.models:
            return
        if name in known.variables:
            raise ExpressionError(f"'{name}' is a variable", node.start, node.end, f"write `${{{name}}}`")
        is_value = attribute in ATTRIBUTES and value in known.values - known.uses
        if dot and (value in MODULES or is_value):
            raise explain_attribute(value, attribute, node.start, node.end)

    def _add(
        self,
        function: str,
        operands: tuple[Expression, ...],
        options: Mapping[str, _Given],
        node: Node,
        called: Node,
        formula: _Formula,
        name: str | None,
    ) -> str:
        """Make the op of a function after those of its operands; return its name."""
        inputs = [self._make(each, formula, None) for each in operands]
        family = "loss" if function in LOSSES and function not in CALLS else "call"
        is_last = name is not None
        name = formula.name_part(is_number=all(map(_is_number, operands)) and not options) if name is None else name
        op: dict[str, Plain] = {family: function, "inputs": inputs}
        path = (*self._path, name)
        if not is_last:
            span = self._point(formula, node.start, node.end)
            self._places[path] = Place(key=span, value=span)
        places: dict[Path, Node] = {(family,): called, ("inputs",): node}
        places |= {("inputs", index): each for index, each in enumerate(operands)}
        args = {key: each.value for key, each in options.items()}
        fields: dict[str, Path] = {key: ("args", key) for key in args}
        for key in IN_CALLS if family == "loss" else ():
            if key in args:
                op[key], fields[key] = args.pop(key), (key,)
        if args:
            op["args"] = args
            places["args",] = node
        for rest, each in places.items():
            span = self._point(formula, each.start, each.end)
            self._places[*path, *rest] = Place(key=span, value=span)
        for name_of, rest in fields.items():
            given = options[name_of]
            key, value = (self._point(formula, each.start, each.end) for each in (given.key, given.place))
            self._places[*path, *rest] = Place(key=key, value=value)
        for key, value in formula.given.items():
            if is_last or key in PASSED_ON:
                op[key] = value
                if not is_last:
                    origin = (*formula.path[:-1], key)  # has no place of its own where Python passes `**fields`
                    spans = self._document.key_span(origin), self._document.value_span(origin)
                    self._places[*path, key] = Place(key=spans[0], value=spans[1])
        formula.made[name] = {**op, "expr": formula.root}
        return name

    def _point(self, formula: _Formula, start: int, end: int) -> Span:
        """Return where some characters of an expression are written; the whole value where it is spelled otherwise."""
        whole = self._document.value_span(formula.path)
        text = self._texts[whole.file]
        if not text.content:
            return whole  # of a graph whose Python code is not in a file
        at, end_at = text.offset(whole.line, whole.column), text.offset(whole.end_line, whole.end_column)
        written = text.content[at:end_at]
        by_index = place_characters(written, formula.text)
        if not by_index:
            return whole
        first = next((by_index[each] for each in range(start, end) if each in by_index), None)
        last = next((by_index[each] for each in range(end - 1, start - 1, -1) if each in by_index), None)
        if first is None or last is None:
            near = max((each for each in by_index if each < max(start, 1)), default=min(by_index))
            first = last = by_index[near]
        return replace(text.span(at + first, at + last + 1), via=whole.via)


def place_characters(written: str, text: str) -> Mapping[int, int]:
    """Return where the characters of a text, but for spaces, stand in what a document has for it.

    Returns nothing where the document spells it otherwise.
    """
    indicator = _INDICATOR.match(written)
    shift = 0 if indicator is None else indicator.end()
    # Lines of a text may be folded and indented in the document: all other characters are the same.
    places = [index for index in range(shift, len(written)) if not written[index].isspace()]
    meant = [index for index, each in enumerate(text) if not each.isspace()]
    spelled = "".join(written[index] for index in places[: len(meant)])
    return dict(zip(meant, places, strict=False)) if spelled == "".join(text[index] for index in meant) else {}


class _Below(Mapping[Path, Place]):
    """The places below a path of a document."""

    def __init__(self, places: Mapping[Path, Place], path: Path) -> None:
        self._places = places
        self._path = path

    def __getitem__(self, path: Path) -> Place:
        return self._places[*self._path, *path]

    def __iter__(self) -> Iterator[Path]:
        length = len(self._path)
        yield from (path[length:] for path in self._places if path[:length] == self._path)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _is_number(node: Expression) -> bool:
    """Return whether a part is made of numbers alone, as far as that is known before variables are replaced."""
    match node:
        case Number():
            return True
        case Name():
            return node.name in CONSTANTS or node.name.startswith("${")
        case Unary():
            return _is_number(node.operand)
        case Binary():
            return _is_number(node.left) and _is_number(node.right)
        case Call():
            return not node.options and all(map(_is_number, node.arguments))
        case Subscript():
            return False


def _find_operands(node: Binary) -> Iterator[Expression]:
    """Yield the operands of an operator: those of a sum of sums from left to right."""
    if node.operator in CHAINED and isinstance(node.left, Binary) and node.left.operator == node.operator:
        yield from _find_operands(node.left)
    else:
        yield node.left
    yield node.right
