"""Resuming a run: which one, what has changed since, and from which checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path as FilePath
from typing import Final, Literal, TypeAlias, cast

from graphspec.declare.data import DataSource
from graphspec.declare.graph import GraphSpec
from graphspec.declare.layers import BUFFERED, Layer, draws
from graphspec.declare.ops import MODES, ForwardOp, RandomOp
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from graphspec.read.builder import Path, Plain
from graphspec.words import spell_path
from graphspec.write.layout import spell_scalar
from graphspec.write.render import to_plain
from runtime.checkpoints import Checkpoint, Store, read_checkpoint
from runtime.folder import RECORD, find_numbers, name_folder
from runtime.problems import problem
from runtime.processes import find_launch, is_restarted
from runtime.train.run_folder import Record, name_spec, read_record

Kind: TypeAlias = Literal["run", "hyper", "structure"]


class Nothing(Enum):
    """The value shown where a spec has none."""

    NOTHING = "nothing"


NOTHING: Final = Nothing.NOTHING
Found: TypeAlias = Plain | Literal[Nothing.NOTHING]

_DATA = frozenset(("batch", "shuffle", "drop_last", "seed", "path", "args"))
"""Fields of the training data that change its batches; a change of another field means other data."""

_LAYER_NUMBERS = frozenset(("dropout", "leaky_relu", "elu", "layer_norm", "rms_norm", "eps", "momentum"))
"""Options of layers, and layers of one option, that no tensor's size depends on."""

_SLOTS = frozenset(("name", "class", "centered", "momentum_form", "initial_accumulator_value"))
"""Options that decide which numbers an optimizer keeps and what they mean, or only their initial values."""

_REMARKS = frozenset(("doc", "defer", "checkpoint"))
"""Fields of ops that change no number."""

_RATES = frozenset(("start", "until", "weight", "decay", "half_life", "tau", "interval_correction", "reset", "use"))
"""Fields of ops that hold numbers that a step reads."""


UNCOUNTED = (None, NOTHING, "constant", "half_life")
"""Kinds of decays that are the same every time; a schedule has none."""


def classify_change(path: Path, before: Found, after: Found) -> Kind:
    """Return what a change at a path of a rendered document means; an unknown path is structure."""
    match path:
        case ("run" | "name", *_):
            return "run"
        case ("seed",) | ("parallel", "buffers"):
            return "hyper"
        case ("parallel", *_):  # the numbers do not depend on the processes
            return "run"
        case ("outputs",):  # returning less may leave out a forward that writes buffers
            is_more = isinstance(before, list) and isinstance(after, list) and all(name in after for name in before)
            return "run" if is_more else "hyper"
        case ("data", "train", "mix", *_):
            return "hyper"
        case ("data", "train", str(field), *_) if field in _DATA:
            return "hyper"
        case ("data", "train", str(name), str(field), *_) if name not in DataSource.model_fields:  # of several sets
            return _hyper_if(field in _DATA)
        case ("data", "train", *_):
            return "structure"
        case ("data", *_):
            return "run"
        case ("models", _, "args", *_):
            return "hyper"  # restoring checks whether the tensors still fit
        case ("models", _, "layers", *_) if path[-1] in _LAYER_NUMBERS:
            return _hyper_if(_is_number(before) and _is_number(after))
        case ("models" | "ops", _, "optimizer", "momentum"):
            return _hyper_if(_is_off(before) == _is_off(after))  # without momentum there is no running mean to continue
        case ("models" | "ops", _, "optimizer", option, *_):
            return _hyper_if(option not in _SLOTS)
        case ("ops", _, name, *_) if name in _REMARKS:
            return "run"
        case ("ops", _, "decay" | "half_life" | "tau", *rest) if not rest and _counts(before) != _counts(after):
            return "structure"  # how often the average took place was not counted
        case ("ops", _, "decay", "kind"):
            return _hyper_if((before in UNCOUNTED) == (after in UNCOUNTED))
        case ("ops", _, name, *_) if name in _RATES:
            return "hyper"
        case ("ops", _, "mode") if _trains(before) == _trains(after):
            return "run"
        case ("ops", _, "every"):
            return _hyper_if(not _is_name(before) and not _is_name(after))
        case ("ops", _, "clip", *_):
            return _hyper_if(path[-1] != "per")
        case ("ops", _, "inputs" | "grad_outputs" | "value", *_):
            return _hyper_if(_is_number(before) and _is_number(after))
        case ("ops", _, "args", *_):
            return _hyper_if(_is_numeric(before) and _is_numeric(after))
        case _:
            return "structure"


def _trains(modes: Found) -> bool:
    """Return whether a list of modes has train."""
    return isinstance(modes, list) and "train" in modes


def _hyper_if(fits: bool) -> Kind:
    return "hyper" if fits else "structure"


def _counts(decay: Found) -> bool:
    """Return whether a decay follows the number of times that its average took place."""
    return isinstance(decay, dict) and decay.get("kind") not in UNCOUNTED


def _is_name(value: Found) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _is_number(value: Found) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_numeric(value: Found) -> bool:
    """Return whether a value is a number, a list of them, a schedule, or left out."""
    match value:
        case list():
            return all(_is_number(item) for item in value)
        case dict():
            return "schedule" in value
        case _:
            return value is NOTHING or _is_number(value)


def _is_off(value: Found) -> bool:
    return value is NOTHING or value == 0


Difference: TypeAlias = tuple[Path, Found, Found]

_LONGEST = 60
_SHARE = re.compile(r"[0-9] run\b")
"""A duration that is a share of the run."""

_OPERANDS = ("inputs", "grad_outputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A place at which two specs differ, its text in each, and what the change means for a run (see resumption)."""

    path: str
    before: str
    after: str
    kind: Kind

    def __str__(self) -> str:
        """Return it as `models.generator.optimizer.lr: 0.0002 -> 0.0001`."""
        return f"{self.path}: {self.before} -> {self.after}"


def compare_specs(old: GraphSpec, new: GraphSpec) -> tuple[Change, ...]:
    """Return every change from one spec to another, in the order of the document.

    The comparison is by meaning: a default that is written out, a variable, an interpolation, another order of ops or a
    shorter spelling are no changes. The order among the forwards of a model that may have buffers is one.
    """
    plain = _normalize(new)
    lasts_a_share = any(_SHARE.search(_write(plain.get(section, NOTHING))) for section in ("models", "ops"))
    changes: list[Change] = []
    for path, before, after in _compare((), _normalize(old), plain):
        # The length of a run changes numbers where something lasts a share of it.
        is_length = path[:2] in (("run", "steps"), ("run", "epochs"))
        kind = "hyper" if is_length and lasts_a_share else classify_change(path, before, after)
        changes.append(Change(path=spell_path(path), before=_show(before), after=_show(after), kind=kind))
    for model in (name for name in new.models if name in old.models and _may_have_buffers(new, name)):
        before, after = _list_forwards(old, model), _list_forwards(new, model)
        if set(before) == set(after) and before != after:  # buffers such as BatchNorm's are updated in this order
            path = f"order of the forwards of {model}"
            changes.append(Change(path=path, before=", ".join(before), after=", ".join(after), kind="structure"))
    return tuple(changes)


def refuse_changes(folder: FilePath, changes: Sequence[Change]) -> SpecError:
    """Return the error (GS245) of a run that cannot be resumed because its structure has changed, with every change."""
    notes = tuple(str(change) for change in changes if change.kind == "structure")
    reason = "its saved state belongs to a different step than the spec declares"
    message = f"the run in {str(folder)!r} cannot be resumed: {reason}"
    return problem("GS245", message, notes=notes, help="undo that, or start a new run in another folder")


def _normalize(spec: GraphSpec) -> dict[str, Plain]:
    """Return a spec as plain data with the implied fields that its ops leave out."""
    plain = to_plain(spec)
    ops: dict[str, Plain] = {}
    for name, op in _children(plain, "ops").items():
        implied: dict[str, Plain] = {"mode": None, "every": 1, "after": []}
        if next(iter(op)) == "loss":
            implied |= {"weight": 1.0, **({"reduction": "mean"} if ":" not in str(op["loss"]) else {})}
        missing = {key: value for key, value in implied.items() if key not in op}
        ops[name] = {**op, **missing, "mode": [mode for mode in MODES if spec.ops[name].runs_in(mode)]}
    sources: dict[str, Plain] = {
        # A seed that is the document's is left out: a change of that one is listed once.
        role: {key: value for key, value in source.items() if key != "seed" or value != spec.seed}
        for role, source in _children(plain, "data").items()
    }
    return {**plain, "ops": ops, "data": sources}


def _children(plain: Mapping[str, Plain], key: str) -> dict[str, dict[str, Plain]]:
    return cast("dict[str, dict[str, Plain]]", plain.get(key, {}))


def _compare(path: Path, before: Found, after: Found) -> Iterator[Difference]:
    """Yield the differences of two values, at the deepest paths that differ."""
    match before, after:
        case dict(), dict() if _head(path, before) == _head(path, after):
            for key in dict.fromkeys((*before, *after)):
                yield from _compare((*path, key), before.get(key, NOTHING), after.get(key, NOTHING))
        case dict(), dict() if path[-1:] == ("optimizer",):
            yield path, _head(path, before), _head(path, after)  # options of two rules are not comparable
        case list(), list() if len(before) == len(after) and (
            path[-1] in _OPERANDS or any(isinstance(item, dict | list) for item in before)
        ):
            for index, pair in enumerate(zip(before, after, strict=True)):
                yield from _compare((*path, index), *pair)
        case _:
            # 1 and 1.0 differ for a user's class, and as operands for the type of a result.
            is_exact = (
                path[2:3] == ("args",) if path[:1] == ("models",) else path[2:3] in (("inputs",), ("grad_outputs",))
            )
            if not _is_same(before, after, exactly=is_exact):
                yield path, before, after


def _head(path: Path, value: dict[str, Plain]) -> Plain:
    """Return what identifies a declaration: the kind of an op or model, the rule of an optimizer."""
    match path:
        case ("ops" | "models", _):
            return next(iter(value))
        case (*_, "optimizer"):
            return value.get("name", value.get("class"))
        case _:
            return None


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
    return layer.kind in BUFFERED or any(map(_has_buffers, layer.layers))


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


def compare_backends(old: str, new: str | None, spec: GraphSpec) -> Iterator[Change]:
    """Yield the change of framework of a resumed run, where there is one; None means the framework it had.

    Where models, optimizers and metrics are built in, saved state fits every framework. With `rng: portable` random
    numbers continue unchanged; with `rng: native` each framework has its own, which the change mentions.
    """
    if new is None or new == old:
        return
    # A class that was not inspected may draw, too.
    draws = any(isinstance(op, RandomOp) for op in spec.ops.values()) or any(
        model.class_ is not None or any(map(_drops, model.layers or ())) for model in spec.models.values()
    )
    others = " (its own random numbers from here on: `rng: native`)" if spec.rng == "native" and draws else ""
    yield Change(path="backend", before=old, after=f"{new}{others}", kind="hyper")


def _drops(layer: Layer) -> bool:
    """Return whether a layer, or one inside it, draws random numbers."""
    return draws(layer.kind, layer.options) or any(map(_drops, layer.layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A run to resume: its folder, its record, and the changes of the spec since."""

    folder: FilePath
    record: Record
    changes: tuple[Change, ...]


def find_past(
    spec: GraphSpec, wanted: FilePath | None, backend: str | None = None, *, resume: bool = True
) -> Past | None:
    """Return the run in a folder, or without one the newest run of the spec's name under ``runs``.

    None where that is not to be resumed, and was not started by the launcher that starts this process again.
    ``backend`` is the framework to resume under, None its own. Raises SpecError: GS243 its record is missing
    or damaged, GS245 the spec has another structure now, GS246 no run.
    """
    folder = wanted
    if wanted is None and (resume or is_restarted()):
        folder = find_newest(spec.name)
    if not resume:
        is_own = is_restarted() and folder is not None and (folder / RECORD).exists()
        if folder is None or not is_own or read_record(folder).launch != find_launch():
            return None
    if folder is None or not folder.is_dir():
        where = f"no run of {spec.name!r} under 'runs'" if wanted is None else f"no run in {str(wanted)!r}"
        help = "leave out --resume to start one, or name its folder with --out"
        raise problem("GS246", f"there is {where} to resume", help=help)
    record = read_record(folder)
    changes = compare_specs(load(record.spec, name=name_spec(folder)), spec)
    if any(change.kind == "structure" for change in changes):
        raise refuse_changes(folder, changes)
    return Past(folder=folder, record=record, changes=(*compare_backends(record.backend, backend, spec), *changes))


def find_newest(name: str) -> FilePath | None:
    """Return the last of ``runs/<name>``, ``runs/<name>-2``, ... that holds a run of that name; None where none does.

    Raises SpecError: GS243 a record is damaged, so that the name of its run is not known.
    """
    folders = (name_folder(name, number) for number in reversed(find_numbers(name)))
    runs = (folder for folder in folders if (folder / RECORD).exists())
    return next((folder for folder in runs if read_record(folder).name == name), None)


def find_checkpoint(store: Store) -> Checkpoint | None:
    """Return the newest checkpoint, after removing leftovers of a kill; None where the run had none yet."""
    store.clean()
    newest = store.newest()
    return None if newest is None else read_checkpoint(newest)
