"""The methods of a graph that draw random numbers.

`python -m tests.graphspec.functions` writes this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from graphspec.python.records import Recorder
from graphspec.python.values import Common, Number, Value, record_op


class Randoms:
    """Draw random numbers: of a shape, or ``like`` a value; the name comes first."""

    _recorder: Recorder

    def normal(
        self,
        name: str | None = None,
        shape: Sequence[int | str] | None = None,
        *,
        like: Value | None = None,
        mean: Number | None = None,
        std: Number | None = None,
        **fields: Unpack[Common],
    ) -> Value:
        """Draw from `normal`: the normal distribution.

        mean: its mean (default 0)
        std: its standard deviation (default 1)

        >>> z = g.normal("z", ["batch", 16])
        """
        return self._draw("normal", name, shape, like, {"mean": mean, "std": std}, fields)

    def uniform(
        self,
        name: str | None = None,
        shape: Sequence[int | str] | None = None,
        *,
        like: Value | None = None,
        low: Number | None = None,
        high: Number | None = None,
        **fields: Unpack[Common],
    ) -> Value:
        """Draw from `uniform`: uniform between low and high.

        low: the least value (default 0)
        high: the limit above (default 1)

        >>> share = g.uniform("share", ["batch", 1])
        """
        return self._draw("uniform", name, shape, like, {"low": low, "high": high}, fields)

    def bernoulli(
        self,
        name: str | None = None,
        shape: Sequence[int | str] | None = None,
        *,
        like: Value | None = None,
        p: Number | None = None,
        **fields: Unpack[Common],
    ) -> Value:
        """Draw from `bernoulli`: 1 with probability p, else 0.

        p: probability of 1 (default 0.5)

        >>> mask = g.bernoulli("mask", like=x, p=0.9)
        """
        return self._draw("bernoulli", name, shape, like, {"p": p}, fields)

    def permutation(
        self,
        name: str | None = None,
        shape: Sequence[int | str] | None = None,
        *,
        like: Value | None = None,
        **fields: Unpack[Common],
    ) -> Value:
        """Draw from `permutation`: the numbers from 0 to n - 1 in random order; its shape is [n].

        >>> order = g.permutation("order", ["batch"])
        """
        return self._draw("permutation", name, shape, like, {}, fields)

    def randint(
        self,
        name: str | None = None,
        shape: Sequence[int | str] | None = None,
        *,
        like: Value | None = None,
        high: int,
        low: int | None = None,
        **fields: Unpack[Common],
    ) -> Value:
        """Draw from `randint`: whole numbers from low to high - 1.

        low: the least value (default 0)
        high: the limit above

        >>> digit = g.randint("digit", ["batch"], high=10)
        """
        return self._draw("randint", name, shape, like, {"low": low, "high": high}, fields)

    def _draw(
        self,
        random: str,
        name: str | None,
        shape: Sequence[int | str] | None,
        like: Value | None,
        options: Mapping[str, object],
        fields: Common,
    ) -> Value:
        args = {key: each for key, each in options.items() if each is not None}
        given = {"random": random, "shape": shape, "like": like, "args": args or None}
        site = self._recorder.sources.find()
        common, places = {**fields, "name": name}, ("name", "shape")
        entry = record_op(self._recorder, "random", given, common, site, positional=places)
        return Value(self._recorder, entry)
