"""Functions of PyTorch as expressions of a spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

from runtime.port.tape import Called, Ref, Value, as_list


class Text(NamedTuple):
    """An expression and how closely it binds: 1 for sums, 2 for products, 3 for signs, 4 for powers, 5 for the rest."""

    text: str
    binds: int = 5

    def within(self, binds: int) -> str:
        """Return it as a part of what binds so closely."""
        return self.text if self.binds >= binds else f"({self.text})"


class UnknownFunction(Exception):
    """A function, or an option of it, that the language does not have."""


Read: TypeAlias = Callable[[object], Text]
"""Returns the expression of an argument."""
Made: TypeAlias = Callable[[object], Called | None]
"""Returns the call of a function that made an argument."""
OPERATORS: Mapping[str, tuple[str, int]] = {
    "add": ("+", 1),
    "sub": ("-", 1),
    "mul": ("*", 2),
    "multiply": ("*", 2),
    "div": ("/", 2),
    "true_divide": ("/", 2),
    "truediv": ("/", 2),
    "pow": ("**", 4),
    "matmul": ("@", 2),
    "mm": ("@", 2),
    "gt": (">", 0),
    "lt": ("<", 0),
    "ge": (">=", 0),
    "le": ("<=", 0),
    "eq": ("==", 0),
    "ne": ("!=", 0),
}
ALONE = ("exp", "log", "sqrt", "abs", "square", "sigmoid", "tanh", "relu", "sign", "softplus")
ALONG: Mapping[str, str] = {
    "mean": "mean",
    "sum": "sum",
    "amax": "max",
    "amin": "min",
    "norm": "norm",
    "vector_norm": "norm",
    "linalg_vector_norm": "norm",
    **{each: each for each in ("logsumexp", "softmax", "log_softmax", "normalize", "cumsum")},
}
LOSSES: Mapping[str, str] = {
    "mse_loss": "mse",
    "l1_loss": "l1",
    "smooth_l1_loss": "huber",
    "huber_loss": "huber",
    "cross_entropy": "cross_entropy",
    "nll_loss": "nll",
    "binary_cross_entropy": "bce",
    "binary_cross_entropy_with_logits": "bce_with_logits",
}
DRAWS = {"randn": "normal", "randn_like": "normal", "rand": "uniform", "rand_like": "uniform"}
"""Functions that draw, and the distributions of the language."""
_SETTINGS = {"label_smoothing": 0.0, "delta": 1.0, "beta": 1.0}
SAME = (
    "clone",
    "contiguous",
    "float",
    "double",
    "requires_grad_",
    "detach_",
    "view_as",
    "expand_as",
    "broadcast_tensors",
)
"""What leaves a value as it is; `detach` is apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call whose arguments are read as expressions."""

    name: str
    args: Sequence[object]
    options: Mapping[str, object]
    read: Read
    made: Made
    values: Sequence[Value]
    shape: tuple[int, ...]
    """Of the first argument."""
    result: tuple[int, ...]
    """The shape of the result."""
    batch: int

    def text(self, index: int) -> str:
        """Return the expression of an argument."""
        return self.read(self.args[index]).text

    def get(self, index: int, *names: str) -> object:
        """Return an argument by its place or one of its names; None where it is left out."""
        if len(self.args) > index:
            return self.args[index]
        return next((self.options[name] for name in names if name in self.options), None)

    def axis(self, index: int) -> int:
        """Return an axis, counted from 0; raise UnknownFunction where it is none."""
        found = self.get(index, "dim", "axis")
        if not isinstance(found, int):
            raise UnknownFunction(f"{self.name} without an axis")
        return found % max(len(self.shape), 1)

    def axis_of(self, entry: Called) -> int | None:
        """Return the axis that another call of a function runs along, counted from 0."""
        found = entry.args[1] if len(entry.args) > 1 else entry.options.get("dim")
        return found % len(self.values[entry.outputs[0]].shape) if isinstance(found, int) else None


def write_call(entry: Called, read: Read, made: Made, values: Sequence[Value], batch: int) -> Text:
    """Return the expression of a call; raise UnknownFunction where there is none."""
    name, args = entry.function, list(entry.args)
    if name.startswith("__r"):
        name, args = name[3:], args[::-1]
    name = name.strip("_")
    first = args[0] if args else None
    call = _Call(
        name=name,
        args=args,
        options=entry.options,
        read=read,
        made=made,
        values=values,
        shape=values[first.number].shape if isinstance(first, Ref) else (),
        result=values[entry.outputs[0]].shape,
        batch=batch,
    )
    if name in OPERATORS and len(args) > 1 and not entry.options:
        sign, binds = OPERATORS[name]
        left, right = read(args[0]), read(args[1])
        if sign == "**":
            return Text(f"{left.within(5)}**{right.within(5)}", 4)
        if not binds:
            return Text(f"{left.within(1)} {sign} {right.within(1)}", 0)
        return Text(f"{left.within(binds)} {sign} {right.within(binds + (sign != '+' and sign != '*'))}", binds)
    if name in LOSSES:
        return _write_loss(name, args, entry.options, read)
    if name in ALONE and len(args) == 1:
        return Text(f"{name}({call.text(0)})")
    if name in ALONG:
        return _write_along(name, args, entry.options, read)
    if name in HANDLERS and args:
        return HANDLERS[name](call)
    raise UnknownFunction(name)


def _write_extreme(call: _Call) -> Text:
    if len(call.args) > 1 and isinstance(call.args[1], Ref):
        return Text(f"{call.name[:3]}imum({call.text(0)}, {call.text(1)})")
    return _write_along(call.name, call.args, call.options, call.read)


def _write_argmax(call: _Call) -> Text:
    axis = call.axis(1)
    found = f"argmax({call.text(0)}{_option('axis', axis, 1)})"
    kept = ", ".join([":"] * axis + ["None"])
    return Text(f"{found}[{kept}]" if call.get(2, "keepdim") else found)


def _write_cosine(call: _Call) -> Text:
    if (call.axis(2) if call.get(2, "dim") is not None else 1) != len(call.shape) - 1:
        raise UnknownFunction("cosine_similarity along another axis than the last")
    return Text(f'1 - cosine({call.text(0)}, {call.text(1)}, reduction="none")', 1)


def _write_joined(call: _Call) -> Text:
    parts = as_list(call.args[0])
    axis = call.get(1, "dim", "axis") or 0
    name, default = ("stack", 0) if call.name == "stack" else ("concat", 1)
    return Text(f"{name}({', '.join(call.read(each).text for each in parts)}{_option('axis', axis, default)})")


def _write_each(call: _Call) -> Text:
    if len(call.args) != 3:
        raise UnknownFunction(f"{call.name} of {len(call.args)} arguments")
    return Text(f"{call.name}({', '.join(map(call.text, range(3)))})")


def _write_axis(call: _Call) -> Text:
    """Write an axis of size 1 that is taken away, or one more."""
    is_new, given = call.name == "unsqueeze", call.get(1, "dim")
    if not isinstance(given, int):
        raise UnknownFunction(f"{call.name} without an axis")
    axis = given % (len(call.shape) + is_new)
    place = ", ".join([":"] * axis + ["None" if is_new else "0"])
    return Text(f"{call.read(call.args[0]).within(5)}[{place}]")


def _write_divergence(call: _Call) -> Text:
    """Write a divergence between two softmaxes, which the language takes of their operands."""
    student, teacher = call.made(call.args[0]), call.made(call.get(1, "target"))
    meant = "log_softmax" if call.options.get("log_target") else "softmax"
    for each, function in ((student, "log_softmax"), (teacher, meant)):
        if each is None or each.function != function or call.axis_of(each) != 1:
            raise UnknownFunction("kl_div of something else than a log_softmax and a softmax over classes")
    assert student is not None
    assert teacher is not None
    reduction = {"batchmean": "", "sum": ', reduction="sum"'}.get(str(call.options.get("reduction", "mean")))
    if reduction is None:
        raise UnknownFunction('kl_div without reduction="batchmean" or "sum"')
    return Text(f"kl_div({call.read(student.args[0]).text}, {call.read(teacher.args[0]).text}{reduction})")


def _write_shape(call: _Call) -> Text:
    rows = call.batch and call.result and call.result[0] % call.batch == 0
    sizes = ["-1" if rows and index == 0 else str(size) for index, size in enumerate(call.result)]
    return Text(f"reshape({call.text(0)}, shape=[{', '.join(sizes)}])")


def _write_order(call: _Call) -> Text:
    order = list(range(len(call.shape)))
    if call.name == "permute":
        given = as_list(call.args[1]) or call.args[1:]
        order = [int(str(each)) % len(order) for each in given]
    else:
        one, other = (0, 1) if call.name == "t" else (call.axis(1), int(str(call.args[2])) % len(order))
        order[one], order[other] = order[other], order[one]
    return Text(f"permute({call.text(0)}, dims={order})")


def _write_negative(call: _Call) -> Text:
    return Text(f"-{call.read(call.args[0]).within(3)}", 3)


HANDLERS: Mapping[str, Callable[[_Call], Text]] = {
    "neg": _write_negative,
    "negative": _write_negative,
    "invert": lambda call: Text(f"~{call.read(call.args[0]).within(5)}", 3),
    "logsigmoid": lambda call: Text(f"-softplus(-{call.read(call.args[0]).within(3)})", 3),
    **dict.fromkeys(("max", "min", "maximum", "minimum"), _write_extreme),
    "argmax": _write_argmax,
    "cosine_similarity": _write_cosine,
    **dict.fromkeys(
        ("clamp", "clip", "clamp_min", "clamp_max"),
        lambda call: _write_clip(call.name, call.args, call.options, call.read),
    ),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack"), _write_joined),
    **dict.fromkeys(("where", "lerp"), _write_each),
    "gather": lambda call: Text(f"gather({call.text(0)}, {call.text(2)}{_option('axis', call.axis(1), 1)})"),
    "kl_div": _write_divergence,
    "one_hot": lambda call: Text(f"one_hot({call.text(0)}, classes={call.get(1, 'num_classes')})"),
    "getitem": lambda call: Text(f"{call.read(call.args[0]).within(5)}[{_subscript(call.args[1], len(call.shape))}]"),
    **dict.fromkeys(("squeeze", "unsqueeze"), _write_axis),
    **dict.fromkeys(("view", "reshape", "flatten"), _write_shape),
    **dict.fromkeys(("permute", "transpose", "swapaxes", "t"), _write_order),
}


def _write_loss(name: str, args: Sequence[object], options: Mapping[str, object], read: Read) -> Text:
    allowed = {"weight", "size_average", "reduce", "reduction", "pos_weight", "ignore_index", *_SETTINGS}
    if set(options) - allowed or any(options.get(key) is not None for key in ("weight", "pos_weight")):
        raise UnknownFunction(f"{name} with {', '.join(options)}")
    if options.get("ignore_index", -100) != -100:
        raise UnknownFunction(f"{name} with ignore_index")
    given = [args[0], args[1] if len(args) > 1 else options.get("target")]
    written = [read(each).text for each in given]
    reduction = options.get("reduction", "mean")
    written += [f'reduction="{reduction}"'] if reduction != "mean" else []
    for key, default in _SETTINGS.items():
        if options.get(key, default) != default:
            if key == "beta":
                raise UnknownFunction("smooth_l1_loss with beta")
            written.append(f"{key}={options[key]!r}")
    return Text(f"{LOSSES[name]}({', '.join(written)})")


def _write_along(name: str, args: Sequence[object], options: Mapping[str, object], read: Read) -> Text:
    first, *rest = args
    if name in ("norm", "vector_norm", "linalg_vector_norm", "normalize"):
        order = options.get("p", options.get("ord", rest.pop(0) if rest else 2))
        if order not in (2, 2.0, "fro", None):
            raise UnknownFunction(f"{name} of order {order}")
        if name == "normalize":
            rest = rest or [options.get("dim", 1)]
    axis = options.get("dim", options.get("axis", rest[0] if rest else None))
    keep = options.get("keepdim", rest[1] if len(rest) > 1 else False)
    axes = as_list(axis)
    if axes:
        axis = axes if len(axes) > 1 else axes[0]
    written = ALONG.get(name, name)
    default = {"normalize": -1, "softmax": -1, "log_softmax": -1, "cumsum": -1}.get(written)
    kept = ", keepdims=True" if keep is True else ""
    return Text(f"{written}({read(first).text}{_option('axis', axis, default)}{kept})")


def _write_clip(name: str, args: Sequence[object], options: Mapping[str, object], read: Read) -> Text:
    low = options.get("min", args[1] if len(args) > 1 and name != "clamp_max" else None)
    high = options.get("max", args[-1] if len(args) > (1 if name == "clamp_max" else 2) else None)
    limits = [f"{key}={each!r}" for key, each in (("min", low), ("max", high)) if isinstance(each, (int, float))]
    if not limits or isinstance(low, Ref) or isinstance(high, Ref):
        raise UnknownFunction(f"{name} without numbers")
    return Text(f"clip({read(args[0]).text}, {', '.join(limits)})")


def _option(name: str, given: object, default: object) -> str:
    return "" if given == default or given is None else f", {name}={given}"


def _subscript(given: object, rank: int) -> str:
    parts = as_list(given) or [given]
    if any(each is Ellipsis for each in parts):  # the language counts axes
        at = next(index for index, each in enumerate(parts) if each is Ellipsis)
        named = sum(each is not None for each in parts) - 1
        parts[at : at + 1] = [slice(None)] * (rank - named)
    written: list[str] = []
    for each in parts:
        match each:
            case bool():
                raise UnknownFunction("a subscript by a mask")
            case int() | None:
                written.append(str(each))
            case slice():
                given_slice = cast("slice[object, object, object]", each)
                ends = (given_slice.start, given_slice.stop, given_slice.step)
                if any(isinstance(end, Ref) for end in ends):
                    raise UnknownFunction("a slice by a value")
                shown = ["" if end is None else str(end) for end in ends]
                written.append(":".join(shown if shown[2] not in ("", "1") else shown[:2]))
            case _:
                raise UnknownFunction("a subscript by a value")
    return ", ".join(written)
