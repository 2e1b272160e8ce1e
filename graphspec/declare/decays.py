"""Decays of averages by their kinds: functions of how often the source was written, with the names of their papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias, cast

from annotated_types import Ge, Gt, Le, Lt
from pydantic import Field, model_validator

from graphspec.declare.base import Declaration, Reader, problem
from graphspec.declare.durations import Duration, LengthField, UpdatesField
from graphspec.declare.fields import is_schedule
from graphspec.declare.schedules import SHARE, Finite, ScheduleSpec

DecayKind: TypeAlias = Literal[
    "constant",
    "half_life",
    "tf",
    "tf_warm",
    "inverse_power",
    "exp_ramp",
    "anneal",
    "cosine",
    "power",
    "uniform",
    "hard",
]

DECAYS: Mapping[DecayKind, Mapping[str, float | None]] = {
    "constant": {"decay": None},
    "half_life": {"half_life": None},
    "tf": {"max": None},
    "tf_warm": {"max": None, "min": 0.0},
    "inverse_power": {"max": None, "min": 0.0, "gamma": 1.0, "power": 2 / 3},
    "exp_ramp": {"max": None, "tau": None},
    "anneal": {"max": None, "gamma": None},
    "cosine": {"from": None, "to": 1.0, "over": None, "endpoint": None},
    "power": {"gamma": None, "sigma_rel": None},
    "uniform": {},
    "hard": {"every": None},
}
"""The fields of every kind with their defaults; None where the field must be written (of `power` one of the two)."""
PLAIN: frozenset[DecayKind] = frozenset({"constant", "half_life"})
"""Kinds that keep the same at any time."""

Share = Annotated[Finite, Ge(0), Le(1)]
Positive = Annotated[Finite, Gt(0)]


class DecaySpec(Declaration):
    """The share of the old average that is kept, by a formula of n: the writes of the source that were counted."""

    kind: DecayKind
    """The formula."""
    decay: Share | None = None
    """constant: the share."""
    half_life: UpdatesField | None = None
    """half_life: after how long half of the old average is gone."""
    max: Share | None = None
    """tf, tf_warm, inverse_power, exp_ramp, anneal: what is never exceeded."""
    min: Share | None = None
    """tf_warm, inverse_power: the least after the first write, which is a copy (default 0)."""
    gamma: Positive | None = None
    """inverse_power: how long the ramp is (default 1); anneal: likewise; power: the exponent, less one."""
    power: Positive | None = None
    """inverse_power: the exponent (default 2/3)."""
    tau: Positive | None = None
    """exp_ramp: the writes after which 63 % of `max` are reached."""
    from_: Share | None = Field(None, alias="from")
    """cosine: the share at the first write."""
    to: Share | None = None
    """cosine: the share at the end, kept from then on (default 1)."""
    over: LengthField | None = None
    """cosine: how many writes the way takes, or how long."""
    endpoint: bool | None = None
    """cosine: whether the last of these writes has the value `to` (lightly), or the one after it (BYOL, DINO)."""
    sigma_rel: Annotated[Finite, Gt(0), Lt(0.2886)] | None = None
    """power: the width of the average as a share of its length (Karras et al. 2024); it gives `gamma`."""
    every: Annotated[int, Ge(1)] | None = None
    """hard: after how many writes the average becomes the source; between these it stays."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Refuse fields of other kinds, and a kind without its fields."""
        allowed, given = DECAYS[self.kind], self.written()
        takes = f"`{self.kind}` takes {', '.join(allowed) or 'nothing more'}"
        for name in given:
            if name not in allowed:
                raise problem("GS053", f"a decay of kind {self.kind} has no `{name}`", help=takes)
        missing = [name for name, default in allowed.items() if default is None and name not in given]
        if self.kind == "power":
            if len(missing) != 1:
                help = "write `sigma_rel: 0.1`, or `gamma: 6.94`, which means the same"
                raise problem("GS053", "a decay of kind power has exactly one of `gamma` and `sigma_rel`", help=help)
            return self
        if missing == ["endpoint"]:
            message = "a decay of kind cosine says by `endpoint` whether the last write of `over` reaches `to`"
            help = "`endpoint: true` divides by over - 1 (lightly), `endpoint: false` by over (BYOL, DINO)"
            raise problem("GS053", message, help=help)
        if missing:
            raise problem("GS053", f"a decay of kind {self.kind} needs `{'`, `'.join(missing)}`", help=takes)
        if self.max is not None and self.min is not None and self.min > self.max:
            help = "`max` is the decay that the formula rises to"
            raise problem("GS053", f"`min: {self.min:g}` is more than `max: {self.max:g}`", help=help)
        if self.kind == "cosine" and self.endpoint and self.over == 1:
            raise problem("GS053", "a way of one write has no end but its beginning", help="write a longer `over`")
        return self

    def written(self) -> Mapping[str, object]:
        """Return the fields that are written, by their names in the language."""
        names: dict[str, object] = {"decay": self.decay, "half_life": self.half_life, "max": self.max, "min": self.min}
        names |= {"gamma": self.gamma, "power": self.power, "tau": self.tau, "from": self.from_, "to": self.to}
        names |= {"over": self.over, "endpoint": self.endpoint, "sigma_rel": self.sigma_rel, "every": self.every}
        return {name: value for name, value in names.items() if value is not None}

    @property
    def resolved(self) -> Mapping[str, object]:
        """Return the fields with the defaults of the kind, by their names in the language."""
        given = self.written()
        found = {name: given.get(name, default) for name, default in DECAYS[self.kind].items()}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def numbers(self) -> Mapping[str, float]:
        """Return what the formula needs, its lengths in writes: of cosine what it divides by, of power its exponent.

        sigma_rel = (g + 1)^(1/2) / ((g + 2) (g + 3)^(1/2)) gives the exponent g of power (Karras et al. 2024, eq. 16):
        the root of a polynomial that rises where it is positive, so that Newton's steps come down to it.
        """
        found = {name: float(value) for name, value in self.resolved.items() if isinstance(value, int | float)}
        match self.kind:
            case "cosine":
                length = self.over.count if isinstance(self.over, Duration) else self.over or 1
                return {"from": found["from"], "to": found["to"], "over": length - bool(self.endpoint)}
            case "power" if self.sigma_rel is not None:
                square, g = self.sigma_rel**-2, self.sigma_rel**-2
                for _ in range(60):
                    value = ((g + 7) * g + 16 - square) * g + 12 - square
                    g -= value / ((3 * g + 14) * g + 16 - square)
                return {"gamma": g}
            case "hard":
                return {"every": self.every or 1}
            case _:
                return found


def _read_decay(value: object) -> object:
    """Return a share, a schedule of train steps, or a formula."""
    if isinstance(value, DecaySpec) or (isinstance(value, dict) and not is_schedule(cast("object", value))):
        return DecaySpec.model_validate(value)
    return SHARE.read(cast("object", value))


DecayField = Annotated[
    float | ScheduleSpec | DecaySpec,
    Reader(_read_decay, Share | ScheduleSpec | DecaySpec),
]
"""The share of the old average that is kept: a number from 0 to 1, a schedule of train steps, or a formula."""
