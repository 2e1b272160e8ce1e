"""Random specs over everything that is built, as plain documents: valid by construction, but for two live versions."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.properties.additions import add_more
from tests.properties.averages import round_averages, vary_averages, write_averages_back
from tests.properties.causality import is_circular
from tests.properties.followers import add_followers
from tests.properties.further import (
    RECENT,
    add_further,
    add_last,
    add_later,
    add_latest,
    add_library_parts,
    add_newest,
)
from tests.properties.idle import wake
from tests.properties.models import has_buffers, random_layers
from tests.properties.optimizers import random_optimizer
from tests.properties.overflow import add_overflow, settle_policies
from tests.properties.rows import add_rows
from tests.properties.terms import match_layers
from tests.properties.updates import add_updates
from tests.properties.values import Values, add_losses, add_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import SearchStrategy

TABLES = 0.06
"""The share of the drafts with a table whose gradient is kept as rows."""


def random_spec(random: Random | int) -> dict:
    """Return a document."""
    return _write(Draft(random if isinstance(random, Random) else Random(random)))


def base_spec(random: Random | int) -> dict:
    """Return a document of the first parts of the language alone; a seed is the same until an optimizer is added."""
    return _write(Draft(random if isinstance(random, Random) else Random(random), is_base=True))


def overflow_spec(random: Random | int) -> dict:
    """Return a document of these parts with a loss scale, or policies, and gradients that are not finite."""
    drawn = random if isinstance(random, Random) else Random(random)
    return _write(Draft(drawn, is_base=True, further=(add_overflow,)))


def _write(draft: Draft) -> dict:
    """Return the document of a draft, once everything is drawn."""
    random = draft.random
    add_values(draft, random.randint(4, 9))
    add_losses(draft, random.randint(2, 4))
    add_updates(draft, random.randint(3, 6))
    add_followers(draft)
    draft.add_orders()
    draft.add_leaves()
    document = draft.finish()
    settle_policies(draft)
    return wake(document)


def specs() -> SearchStrategy[dict]:
    """Return random documents as a strategy, whose choices shrink."""
    from hypothesis import strategies as st

    return st.builds(random_spec, st.randoms(use_true_random=False))


class Draft:
    """A document while it is written."""

    def __init__(
        self, random: Random, *, is_base: bool = False, further: Sequence[Callable[[Draft], None]] = ()
    ) -> None:
        self.random, self.size, self.is_base, self.further = random, random.choice([2, 3, 4]), is_base, further
        self.models: dict[str, dict] = {}
        self.ops: dict[str, dict] = {}
        self.values = Values()
        self.losses: dict[str, frozenset[str]] = {}
        """What gradients of a loss reach in all its parts, not only by a second derivative: models and values."""
        self.reached: dict[str, frozenset[str]] = {}
        """What gradients of a loss, or of a term of one, reach in any way."""
        self.terms: dict[str, list[str]] = {}
        """The losses that a loss adds up."""
        self.slow: dict[str, str] = {}
        """Models that will follow another, by name."""
        self.inputs: dict[str, dict] = {}
        """Further inputs of the document."""
        self.fields: dict[str, object] = {}
        """Further fields of the document."""
        self._add_models()

    def chance(self, probability: float) -> bool:
        """Return true with a probability."""
        return self.random.random() < probability

    def _add_models(self) -> None:
        for name in "abcde"[: self.random.randint(2, 5)]:
            peers = [peer for peer in self.models if "layers" in self.models[peer] and not self.is_table(peer)]
            declared: dict[str, object]
            if self.chance(0.06):
                declared = {"layers": [{"embedding": {"count": self.size, "size": 3}}, {"linear": self.size}]}
            elif peers and self.chance(0.12):
                declared = {"like": self.random.choice(peers)} | ({"init": "fresh"} if self.chance(0.5) else {})
            elif peers and self.chance(0.1):
                init = self.random.choice(["ones", "normal", "uniform", 0.5])
                declared = {"parameter": {"shape": self.random.choice([[self.size], []]), "init": init}}
            else:
                declared = {"layers": random_layers(self.random, self.size)}
            self.models[name] = {**declared, "optimizer": random_optimizer(self.random)}
        for source in [
            name for name in self.models if "parameter" not in self.models[name] and not self.is_table(name)
        ]:
            if self.chance(0.35):
                self.slow[f"slow_{source}"] = source
                self.models[f"slow_{source}"] = {"like": source}

    def new(self, prefix: str) -> str:
        """Return a name that no op has."""
        return f"{prefix}{sum(name.startswith(prefix) for name in self.ops)}"

    def is_table(self, model: str) -> bool:
        """Return whether a model takes classes, not features."""
        return "embedding" in repr(self.models[model])

    def root(self, model: str) -> str:
        """Return the model that says of which layers a model is made."""
        like = self.models.get(model, {}).get("like")
        return model if like is None else self.root(like)

    def is_called(self, model: str) -> bool:
        """Return whether the sizes of a model follow from some call."""
        called = [op["forward"] for op in self.ops.values() if op.get("forward") in self.models]
        return self.root(model) in map(self.root, called)

    def owned(self) -> set[str]:
        """Return the models that some update steps."""
        return {model for op in self.ops.values() for model in op.get("update", [])}

    def try_fields(self, name: str, fields: dict) -> bool:
        """Add fields to an op unless something would have to come before itself; return whether they were."""
        ops = {**self.ops, name: {**self.ops[name], **fields}}
        if is_circular(ops):
            return False
        self.ops = ops
        return True

    def extend(self, ops: dict, total: dict, update: str | None) -> None:
        """Add ops, and let an update follow their sum with its loss, unless something would come before itself."""
        stepped = {} if update is None else {update: {**self.ops[update], "loss": next(iter(total))}}
        found = {**self.ops, **ops, **total, **stepped}
        if not is_circular(found):
            self.ops = found

    def add_orders(self) -> None:
        """Write ``after`` at some forwards and updates, and ``[]`` at others."""
        writes = [name for name, op in self.ops.items() if {"update", "ema", "copy"} & op.keys()]
        for name, op in list(self.ops.items()):
            if "after" not in op and writes and self.chance(0.18 if "forward" in op else 0.06):
                self.try_fields(
                    name, {"after": self.random.sample(writes, self.random.randint(1, min(2, len(writes))))}
                )
            elif "forward" in op and "after" not in op and self.chance(0.1):
                self.ops[name] = {**op, "after": []}

    def add_leaves(self) -> None:
        """Add what is only looked at: forwards with clocks, evaluations in other modes, metrics."""
        updates = [name for name, op in self.ops.items() if "update" in op]
        for name in self.random.sample(list(self.models), min(2, len(self.models))):
            if "parameter" in self.models[name] or self.is_table(name) or not self.chance(0.4):
                continue
            leaf: dict[str, object] = {"forward": name, "inputs": self.random.choice(["x", "y"])}
            clocks = [{"every": 2}, *({"every": update} for update in updates[:1])]
            modes = [{"mode": "eval"}, {"mode": ["eval", "train"], "train": False}]
            leaf |= self.random.choice([*modes, *clocks])
            if not is_circular({**self.ops, "leaf": leaf}):
                self.ops[self.new("leaf")] = leaf
        if self.chance(0.25):
            reset = self.random.choice(["epoch", "never", "step", "2 steps"])
            seen = self.random.choice(self.values.names(["forward"], self.ops) or ["x"])
            metric = self.random.choice(
                [{"metric": "mean", "inputs": seen}, {"metric": "accuracy", "inputs": [seen, "label"]}]
            )
            self.ops["watched"] = {**metric, "reset": reset}

    def finish(self) -> dict:
        """Return the document, its ops in random order."""
        names = list(self.ops)
        self.random.shuffle(names)
        values = [name for name in names if {"forward", "call", "loss", "random"} & self.ops[name].keys()]
        values = [name for name in values if "outputs" not in self.ops[name] and "update" not in self.ops[name]]
        values = [name for name in values if not self.is_set(name)]
        outputs = self.random.sample(values, self.random.randint(1, len(values)))
        seed, is_plain = self.random.randint(0, 99), self.chance(0.15)
        names, outputs = self._add_more(names, outputs)
        for add in self.further:
            names, outputs = self._add(add, names, outputs)
        if not self.is_base:
            names, outputs = self._add(add_further, names, outputs)
            self.random = Random(repr(self.ops))  # its own numbers: a seed without these gives what it always gave
            names, outputs = self._add(add_latest, names, outputs)
            names, outputs = self._add(add_newest, names, outputs)
            names, outputs = self._add(add_library_parts, names, outputs)
            vary_averages(self)
            self.random = Random(repr(self.ops))
            names, outputs = self._add(add_later, names, outputs)
            self.random = Random(f"{self.ops!r} parts")
            names, outputs = self._add(add_last, names, outputs)
            self.random = Random(f"{self.ops!r} rows")
            if self.chance(TABLES):
                names, outputs = self._add(add_rows, names, outputs)
            self.random = Random(f"{self.ops!r} rounding")
            round_averages(self)
            self.random = Random(f"{self.ops!r} backs")
            write_averages_back(self)
            for add, share in RECENT:
                self.random = Random(f"{self.ops!r} {add.__name__}")
                if self.chance(share):
                    names, outputs = self._add(add, names, outputs)
        match_layers(self)
        shape = {"shape": ["batch", self.size]}
        document = {
            "graphspec": 1,
            "name": "random",
            "seed": seed,
            "rng": "portable",
            "inputs": {"x": shape, "y": shape, "label": {"shape": ["batch"], "dtype": "int64"}, **self.inputs},
            "models": self.models,
            "ops": {name: self.ops[name] for name in names},
            **self.fields,
        }
        return document if is_plain else {**document, "outputs": outputs}

    def _add_more(self, names: list[str], outputs: list[str]) -> tuple[list[str], list[str]]:
        """Add rarer things to a third; return the ops in their order, new ones anywhere, and the outputs."""
        return self._add(add_more, names, outputs) if self.chance(0.35) else (names, outputs)

    def _add(self, add: Callable[[Draft], None], names: list[str], outputs: list[str]) -> tuple[list[str], list[str]]:
        """Add what a function adds; return the ops in their order, new ones anywhere, and the outputs."""
        add(self)
        added = [name for name in self.ops if name not in names]
        for name in added:
            names.insert(self.random.randint(0, len(names)), name)
        shown = [name for name in added if {"forward", "loss", "random"} & self.ops[name].keys()]
        shown = [name for name in shown if "within" not in self.ops[name]]
        shown += [name for name in added if name in ("part.seen", "coil.seen", "kit.coil.seen")]
        shown = [name for name in shown if not {"update", "outputs"} & self.ops[name].keys() and self.chance(0.3)]
        return names, [*outputs, *shown]

    def is_set(self, name: str) -> bool:
        """Return whether a value is a gradient set."""
        op = self.ops.get(name, {})
        return "transform" in op or name in self.sets()

    def sets(self) -> set[str]:
        """Return the gradient sets."""
        return {name for name in self.ops if name.startswith("set")}

    def with_buffers(self, model: str) -> bool:
        """Return whether a model has BatchNorm."""
        return has_buffers(self.models, model)
