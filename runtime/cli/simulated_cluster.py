"""The text of ``--simulate``: ``ranks=8..1024, bandwidth=25GB/s, latency=5us, flops=50TFLOP/s``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal, NoReturn, TypeAlias, get_args

from msgspec import Struct

from compiler import Plan
from compiler.plan.simulate.cluster import Cluster, Collectives, Scaling
from graphspec.declare.options import BATCH
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.read.builder import SourceText
from graphspec.words import did_you_mean, enumerate_words, quote

FILE = "--simulate"
"""The name of the text, in place of a file."""
CODE = "GS239"
Units: TypeAlias = Mapping[str, Fraction]
PREFIXES: Units = {prefix: Fraction(1000**power) for power, prefix in enumerate(("", "k", "M", "G", "T", "P"))}
BINARY: Units = {prefix: Fraction(1024**power) for power, prefix in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)}
BYTES: Units = {f"{prefix}B": scale for prefix, scale in {**PREFIXES, **BINARY}.items()}
TIMES: Units = {
    unit: Fraction(1, 1000**power) for unit, power in (("s", 0), ("ms", 1), ("us", 2), ("µs", 2), ("ns", 3))
}
UNITS: Mapping[str, Units] = {
    "bandwidth": {
        **{f"{unit}/s": scale for unit, scale in BYTES.items()},
        **{f"{prefix}{bit}": scale / 8 for prefix, scale in PREFIXES.items() for bit in ("bit/s", "bps")},
    },
    "latency": TIMES,
    "step": TIMES,
    "overhead": TIMES,
    "memory": BYTES,
    "flops": {f"{prefix}{unit}": scale for prefix, scale in PREFIXES.items() for unit in ("FLOP/s", "FLOPS", "flop/s")},
    ".flops": {f"{prefix}{unit}": scale for prefix, scale in PREFIXES.items() for unit in ("FLOP", "flop")},
    ".parameters": PREFIXES,
}
"""The units of every key, by what a number of each is worth."""
EXAMPLES: Mapping[str, str] = {
    "ranks": "ranks=8..1024",
    "bandwidth": "bandwidth=25GB/s",
    "latency": "latency=5us",
    "step": "step=12ms",
    "overhead": "overhead=2ms",
    "memory": "memory=80GB",
    "flops": "flops=50TFLOP/s",
    "cores": "cores=8",
    ".flops": "net.flops=4GFLOP",
    ".parameters": "net.parameters=25.6M",
}
CHOICES: Mapping[str, Sequence[str]] = {"scaling": get_args(Scaling), "collectives": get_args(Collectives)}
NUMBER = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*(.*)", re.DOTALL)
RANGE = re.compile(r"(\d+)\s*\.\.\s*(\d+)")
MOST = 10**9


class _Item(Struct, frozen=True, kw_only=True):
    """A part of the text between commas: a key with its value, or one more value of the key before."""

    key: str
    value: str
    start: int
    """Where it begins in the text,"""
    value_start: int
    """and where its value does."""


def read_cluster(text: str, plan: Plan) -> Cluster:
    """Return the cluster that a text describes, for a plan whose models and free sizes it may name.

    Raises SpecError (GS239) with everything that is wrong with it.
    """
    return _Reader(text=SourceText(file=FILE, content=text), plan=plan).read()


def expand_ranks(first: int, last: int) -> tuple[int, ...]:
    """Return a range of numbers of processes: both ends, and the powers of two between them."""
    powers = (2**power for power in range(first.bit_length(), last.bit_length()))
    return tuple(sorted({first, *(each for each in powers if first < each < last), last}))


class _Reader(Struct, frozen=True, kw_only=True):
    """How the text is read, with a place for everything that is wrong."""

    text: SourceText
    plan: Plan

    def read(self) -> Cluster:
        """Return the cluster."""
        values: dict[str, float | str] = {}
        ranks: list[int] = []
        problems: list[Diagnostic] = []
        seen: set[str] = set()
        for item in self._split():
            try:
                if item.key in seen and item.key != "ranks":
                    self._fail(f"`{item.key}` is there twice", item, help="remove one of them")
                seen.add(item.key)
                if item.key == "ranks":
                    ranks += self._read_ranks(item)
                else:
                    values[item.key] = self._read_value(item)
            except SpecError as error:
                problems += error.diagnostics
        if problems:
            raise SpecError(problems, self.text.texts)
        return self._build(seen, tuple(sorted(set(ranks))), values)

    def _split(self) -> Iterator[_Item]:
        """Yield the parts between commas; one without `=` is another value of the key before it."""
        start, key = 0, ""
        for part in self.text.content.split(","):
            begin = start + len(part) - len(part.lstrip())
            name, equals, value = part.strip().partition("=")
            key = name.strip() if equals else key
            written = value if equals else name
            offset = begin + (len(name) + 1 if equals else 0) + len(written) - len(written.lstrip())
            if part.strip() or start == 0:
                yield _Item(key=key, value=written.strip(), start=begin, value_start=offset)
            start += len(part) + 1

    @property
    def models(self) -> tuple[str, ...]:
        """Return the models of which only a class knows layers and parameters."""
        return tuple(each.name for each in self.plan.program.models if each.kind == "class" and each.like is None)

    @property
    def sizes(self) -> tuple[str, ...]:
        """Return the free sizes of the inputs, the batch first."""
        found = (size for each in self.plan.program.inputs for size in each.shape or () if isinstance(size, str))
        return tuple(dict.fromkeys((BATCH, *(size for size in found if size.isidentifier()))))

    @property
    def keys(self) -> tuple[str, ...]:
        """Return every key that there is for the plan."""
        plain = [each for each in EXAMPLES if not each.startswith(".")]
        named = (f"{model}{field}" for model in self.models for field in (".flops", ".parameters"))
        return (*plain, *CHOICES, *self.sizes, *named)

    def _read_value(self, item: _Item) -> float | str:
        """Return the value of a key: a number in its basic unit, or a word."""
        key = item.key
        if key not in self.keys:
            if not key:
                self._fail("expected `key=value`", item, help="write them with commas between, as in `latency=5us`")
            self._fail(
                f"there is no key {quote(key)}",
                item,
                label=did_you_mean(key, self.keys),
                help=f"the keys are {enumerate_words(self.keys, conjunction='and')}",
                is_key=True,
            )
        if key in CHOICES:
            if item.value not in CHOICES[key]:
                words = enumerate_words(CHOICES[key], conjunction="or")
                self._fail(
                    f"`{key}` is {words}, not {quote(item.value)}", item, help=f"write `{key}={CHOICES[key][0]}`"
                )
            return item.value
        if key == "cores" or key in self.sizes:
            return float(self._read_count(item.value, item))
        kind = key if key in UNITS else f".{key.rpartition('.')[2]}"
        units, example = UNITS[kind], EXAMPLES[kind]
        match = NUMBER.fullmatch(item.value)
        if match is None:
            self._fail(f"`{key}` is a number with a unit, not {quote(item.value)}", item, help=f"as in `{example}`")
        number, unit = Fraction(match[1]), match[2].strip()
        if unit not in units:
            what = f"{quote(unit)} is no unit of `{key}`" if unit else f"`{key}` has no unit"
            shown = [each for each in units if each]
            near = did_you_mean(unit, shown) if unit else ""
            self._fail(what, item, label=near, help=f"as in `{example}`; units are {', '.join(shown)}")
        if number == 0 and key not in ("latency", "overhead"):
            self._fail(f"`{key}` is more than zero", item, help=f"as in `{example}`")
        return float(number * units[unit])

    def _read_ranks(self, item: _Item) -> tuple[int, ...]:
        """Return a number of processes, or those of a range."""
        match = RANGE.fullmatch(item.value)
        if match is None:
            return (self._read_count(item.value, item),)
        first, last = (self._read_count(each, item) for each in match.groups())
        if first > last:
            self._fail(f"the range ends before it begins: {first} is more than {last}", item, help=f"{last}..{first}")
        return expand_ranks(first, last)

    def _read_count(self, text: str, item: _Item) -> int:
        """Return a whole number from 1 on."""
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:20]) <= MOST:
            help = EXAMPLES.get(item.key, f"{item.key}=32")
            more = " or `ranks=1, 2, 6`" if item.key == "ranks" else ""
            self._fail(f"`{item.key}` is a whole number, not {quote(text)}", item, help=f"as in `{help}`{more}")
        return int(text)

    def _build(self, seen: set[str], ranks: tuple[int, ...], values: Mapping[str, float | str]) -> Cluster:
        """Return the cluster of these values; raise SpecError where some are missing, or do not go together."""
        problems = [
            self._diagnose(f"`{key}` is missing", help=f"add it, as in `{EXAMPLES[key]}`")
            for key in ("ranks", "bandwidth", "latency")
            if key not in seen
        ]
        if {"flops", "step"} <= seen:
            message = "`flops` and `step` both say how fast a process is"
            problems.append(self._diagnose(message, help="keep one of them: `step` is measured"))
        if not {"flops", "step"} & seen:
            message = "the speed of a process is missing"
            help = f"add `{EXAMPLES['flops']}`, or the time of a step on one process: `{EXAMPLES['step']}`"
            problems.append(self._diagnose(message, help=help))
        if problems:
            raise SpecError(problems, self.text.texts)
        numbers = {key: value for key, value in values.items() if not isinstance(value, str)}
        step, overhead = numbers.get("step"), numbers.get("overhead", 0.0)
        if step is not None and overhead > step:
            message = "the overhead is longer than the step that it is a part of"
            raise SpecError([self._diagnose(message, help="measure both on one process")], self.text.texts)
        scaling: Scaling = "weak" if values.get("scaling") == "weak" else "strong"
        chosen: dict[str | float, Collectives] = {each: each for each in ("auto", "ring", "tree")}
        cores = numbers.get("cores")
        return Cluster(
            ranks=ranks,
            bandwidth=numbers["bandwidth"],
            latency=numbers["latency"],
            flops=numbers.get("flops"),
            step=step,
            overhead=overhead,
            memory=numbers.get("memory"),
            cores=None if cores is None else int(cores),
            scaling=scaling,
            collectives=chosen[values.get("collectives", "auto")],
            sizes={name: int(numbers[name]) for name in self.sizes if name in numbers},
            parameters=self._by_model(numbers, ".parameters"),
            costs=self._by_model(numbers, ".flops"),
        )

    def _by_model(self, numbers: Mapping[str, float], field: Literal[".parameters", ".flops"]) -> dict[str, int]:
        """Return a number that some models have, by model."""
        found = ((model, numbers.get(f"{model}{field}")) for model in self.models)
        return {model: round(number) for model, number in found if number is not None}

    def _fail(self, message: str, item: _Item, *, label: str = "", help: str = "", is_key: bool = False) -> NoReturn:
        """Raise what is wrong with a part, at its key or at its value."""
        start, length = (item.start, len(item.key)) if is_key else (item.value_start, len(item.value))
        span = self.text.span(start, start + max(length, 1))
        found = Diagnostic(code=CODE, message=message, span=span, label=label, help=help)
        raise SpecError([found], self.text.texts)

    def _diagnose(self, message: str, *, help: str) -> Diagnostic:
        """Return what is wrong with the text as a whole."""
        span = self.text.span(0, len(self.text.content))
        return Diagnostic(code=CODE, message=message, span=span, help=help)
