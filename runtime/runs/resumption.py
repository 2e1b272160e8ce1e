"""What a change of a spec means for a run that goes on from its saved state.

- ``run``: nothing that a training step computes changes: lengths, logs, remarks, what is returned besides.
- ``hyper``: numbers that a step reads change, and the saved state fits: learning rates, weights, rates, batches.
- ``structure``: another step, whose state is another one; also whatever only says how a run begins.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, TypeAlias

from graphspec.builder import Path, Plain
from graphspec.data import DataSource

Kind: TypeAlias = Literal["run", "hyper", "structure"]


class Nothing(Enum):
    """What stands where a spec says nothing."""

    NOTHING = "nothing"


NOTHING: Final = Nothing.NOTHING
Found: TypeAlias = Plain | Literal[Nothing.NOTHING]

_DATA = frozenset(("batch", "shuffle", "drop_last", "seed", "path", "args"))
"""Fields of the training data that change batches; the others say that the data are other ones."""

_LAYER_NUMBERS = frozenset(("dropout", "leaky_relu", "elu", "layer_norm", "eps", "momentum"))
"""Options of layers, and layers of one option, that no tensor's size depends on."""

_SLOTS = frozenset(("name", "class", "centered", "momentum_form", "initial_accumulator_value"))
"""What decides which numbers an optimizer keeps and what they mean, or only how they begin."""

_REMARKS = frozenset(("doc", "defer", "checkpoint"))
"""Fields of ops that leave all numbers as they are."""

_RATES = frozenset(("start", "until", "weight", "decay", "half_life", "tau", "interval_correction", "reset", "use"))
"""Fields of ops that hold numbers that a step reads."""


def judge(path: Path, before: Found, after: Found) -> Kind:
    """Return what a change at a path of a document (as it is rendered) means; what is not known is structure."""
    match path:
        case ("run" | "name", *_):
            return "run"
        case ("seed",):
            return "hyper"
        case ("outputs",):
            return _judge_outputs(before, after)
        case ("data", "train", *rest):
            return _hyper_if(_changes_batches(tuple(rest)))
        case ("data", *_):
            return "run"
        case ("models", _, *rest):
            return _judge_model(tuple(rest), before, after)
        case ("ops", _, *rest):
            return _judge_op(tuple(rest), before, after)
        case _:
            return "structure"


def _changes_batches(rest: Path) -> bool:
    """Return whether a field of the training data, or of one of several sets, changes batches and nothing else."""
    match rest:
        case ("mix", *_):
            return True
        case (str(field), *_) if field in _DATA:
            return True
        case (str(name), str(field), *_) if name not in DataSource.model_fields:
            return field in _DATA
        case _:
            return False


def _judge_outputs(before: Found, after: Found) -> Kind:
    """Return ``run`` where more is returned: returning less may leave out a forward that writes buffers."""
    is_more = isinstance(before, list) and isinstance(after, list) and all(name in after for name in before)
    return "run" if is_more else "hyper"


def _judge_model(rest: Path, before: Found, after: Found) -> Kind:
    match rest:
        case ("args", *_):
            return "hyper"  # whether the tensors still fit is seen when they are restored
        case ("optimizer", *option):
            return _judge_optimizer(tuple(option), before, after)
        case ("layers", *_) if rest[-1] in _LAYER_NUMBERS:
            return _hyper_if(_is_number(before) and _is_number(after))
        case _:
            return "structure"


def _judge_optimizer(option: Path, before: Found, after: Found) -> Kind:
    match option:
        case ("momentum",):
            return _hyper_if(
                _is_off(before) == _is_off(after)
            )  # without momentum there is no running mean to go on from
        case (name, *_):
            return _hyper_if(name not in _SLOTS)
        case _:
            return "structure"


def _judge_op(rest: Path, before: Found, after: Found) -> Kind:
    match rest:
        case (name, *_) if name in _REMARKS:
            return "run"
        case (name, *_) if name in _RATES:
            return "hyper"
        case ("mode",) if _trains(before) == _trains(after):
            return "run"
        case ("every",):
            return _hyper_if(not _is_name(before) and not _is_name(after))
        case ("clip", *_):
            return _hyper_if(rest[-1] != "per")
        case ("optimizer", *option):
            return _judge_optimizer(tuple(option), before, after)
        case ("inputs" | "grad_outputs" | "value", *_):
            return _hyper_if(_is_number(before) and _is_number(after))
        case ("args", *_):
            return _hyper_if(_is_numeric(before) and _is_numeric(after))
        case _:
            return "structure"


def _trains(modes: Found) -> bool:
    """Return whether a list of modes names that of training."""
    return isinstance(modes, list) and "train" in modes


def _hyper_if(fits: bool) -> Kind:
    return "hyper" if fits else "structure"


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
