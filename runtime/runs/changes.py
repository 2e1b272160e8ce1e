"""What differs between the spec that a run was started with and the one that it shall go on with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TypeAlias, cast

from graphspec.builder import Path, Plain
from graphspec.diagnostics import SpecError
from graphspec.graph import GraphSpec
from graphspec.layers import Layer
from graphspec.ops import MODES, ForwardOp
from graphspec.rendering import to_plain
from graphspec.rendering.scalars import spell_scalar
from graphspec.words import spell_path
from runtime.problems import problem
from runtime.runs.resumption import NOTHING, Found, Kind, Nothing, judge

Difference: TypeAlias = tuple[Path, Found, Found]

_LONGEST = 60
_SHARE = re.compile(r"[0-9] run\b")
"""A duration that is a share of the run."""

_OPERANDS = ("inputs", "grad_outputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A place at which two specs differ, what stands there in each, and what that means for a run (see resumption)."""

    path: str
    before: str
    after: str
    kind: Kind

    def __str__(self) -> str:
        """Return it as `models.generator.optimizer.lr: 0.0002 -> 0.0001`."""
        return f"{self.path}: {self.before} -> {self.after}"


def compare_specs(old: GraphSpec, new: GraphSpec) -> tuple[Change, ...]:
    """Return every change from one spec to another, in the order of the document.

    What is compared is what the specs mean: a default that is written out, a variable, an interpolation, another order
    of ops or a shorter spelling are no changes. The order among the forwards of a model that may have buffers is one.
    """
    plain = _normalise(new)
    changes = [
        Change(path=spell_path(path), before=_show(before), after=_show(after), kind=_judge(path, before, after, plain))
        for path, before, after in _compare((), _normalise(old), plain)
    ]
    return (*changes, *_compare_orders(old, new))


def refuse_changes(folder: FilePath, changes: Sequence[Change]) -> SpecError:
    """Return the error (GS245) of a run that cannot go on because its structure has changed, all changes named."""
    notes = tuple(str(change) for change in changes if change.kind == "structure")
    message = f"the run in {str(folder)!r} cannot go on: its saved state is that of another step than the spec declares"
    return problem("GS245", message, notes=notes, help="put that back, or start a new run in another folder")


def _judge(path: Path, before: Found, after: Found, new: dict[str, Plain]) -> Kind:
    """Return what a change means; the length of a run is a number of its steps where something lasts a share of it."""
    is_length = path[:2] in (("run", "steps"), ("run", "epochs"))
    is_shared = any(_SHARE.search(_write(new.get(section, NOTHING))) for section in ("models", "ops"))
    return "hyper" if is_length and is_shared else judge(path, before, after)


def _normalise(spec: GraphSpec) -> dict[str, Plain]:
    """Return a spec as plain data that also says what its ops leave out because it holds anyway."""
    plain = to_plain(spec)
    ops, sources = _children(plain, "ops"), _children(plain, "data")
    return {
        **plain,
        "ops": {name: {**_complete(op), "mode": _find_modes(spec, name)} for name, op in ops.items()},
        "data": {role: _drop_seed(source, spec.seed) for role, source in sources.items()},
    }


def _children(plain: Mapping[str, Plain], key: str) -> dict[str, dict[str, Plain]]:
    return cast("dict[str, dict[str, Plain]]", plain.get(key, {}))


def _complete(op: dict[str, Plain]) -> dict[str, Plain]:
    implied: dict[str, Plain] = {"mode": None, "every": 1, "after": []}
    if next(iter(op)) == "loss":
        implied["weight"] = 1.0
        implied |= {"reduction": "mean"} if ":" not in str(op["loss"]) else {}
    return {**op, **{key: value for key, value in implied.items() if key not in op}}


def _find_modes(spec: GraphSpec, op: str) -> list[Plain]:
    """Return the modes that an op may run in, however they are written."""
    return [mode for mode in MODES if spec.ops[op].runs_in(mode)]


def _drop_seed(source: dict[str, Plain], seed: int) -> dict[str, Plain]:
    """Return a data source without a seed that is the document's: a change of that one is told once."""
    return {key: value for key, value in source.items() if key != "seed" or value != seed}


def _compare(path: Path, before: Found, after: Found) -> Iterator[Difference]:
    """Yield the differences of two values, as deep in them as they are."""
    match before, after:
        case dict(), dict() if _head(path, before) == _head(path, after):
            for key in dict.fromkeys((*before, *after)):
                yield from _compare((*path, key), before.get(key, NOTHING), after.get(key, NOTHING))
        case dict(), dict() if path[-1:] == ("optimizer",):
            yield path, _head(path, before), _head(path, after)  # the options of two rules have nothing in common
        case list(), list() if len(before) == len(after) and _is_taken_apart(path, before):
            for index, pair in enumerate(zip(before, after, strict=True)):
                yield from _compare((*path, index), *pair)
        case _ if not _is_same(before, after, exactly=_is_exact(path)):
            yield path, before, after
        case _:
            return


def _head(path: Path, value: dict[str, Plain]) -> Plain:
    """Return what makes a mapping another thing altogether: the kind of an op or model, the rule of an optimizer."""
    match path:
        case ("ops" | "models", _):
            return next(iter(value))
        case (*_, "optimizer"):
            return value.get("name", value.get("class"))
        case _:
            return None


def _is_taken_apart(path: Path, value: list[Plain]) -> bool:
    """Return whether the items of a list are told one by one: operands, layers, parts."""
    return path[-1] in _OPERANDS or any(isinstance(item, dict | list) for item in value)


def _is_exact(path: Path) -> bool:
    """Return whether 1 and 1.0 differ: they do for a user's class, and as operands for the type of a result."""
    return path[2:3] == ("args",) if path[:1] == ("models",) else path[2:3] in (("inputs",), ("grad_outputs",))


def _is_same(before: Found, after: Found, *, exactly: bool) -> bool:
    match before, after:
        case list(), list() if len(before) == len(after):
            return all(_is_same(*pair, exactly=exactly) for pair in zip(before, after, strict=True))
        case (bool(), _) | (_, bool()):
            return before is after
        case int() | float(), int() | float() if not exactly:
            return before == after
        case _:
            return repr(before) == repr(after)


def _compare_orders(old: GraphSpec, new: GraphSpec) -> Iterator[Change]:
    """Yield the models whose forwards are listed in another order: buffers such as BatchNorm's see them in that one."""
    shared = [name for name in new.models if name in old.models and _may_have_buffers(new, name)]
    for model in shared:
        before, after = _list_forwards(old, model), _list_forwards(new, model)
        if set(before) == set(after) and before != after:
            yield Change(
                path=f"order of the forwards of {model}",
                before=", ".join(before),
                after=", ".join(after),
                kind="structure",
            )


def _list_forwards(spec: GraphSpec, model: str) -> list[str]:
    return [name for name, op in spec.ops.items() if isinstance(op, ForwardOp) and op.forward == model]


def _may_have_buffers(spec: GraphSpec, name: str) -> bool:
    model = spec.models[name]
    if model.like is not None:
        return _may_have_buffers(spec, model.like)
    if model.class_ is not None:
        return model.traits is None or model.traits.buffers is not False
    return any(map(_has_buffers, model.layers or ()))


def _has_buffers(layer: Layer) -> bool:
    return layer.kind == "batch_norm" or any(map(_has_buffers, layer.layers))


def _show(value: Found) -> str:
    """Return a value as a document has it on one line, cut where it is long."""
    text = _write(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _write(value: Found) -> str:
    match value:
        case Nothing.NOTHING:
            return "nothing"
        case dict():
            return f"{{{', '.join(f'{key}: {_write(item)}' for key, item in value.items())}}}"
        case list():
            return f"[{', '.join(map(_write, value))}]"
        case _:
            return spell_scalar(value)
