"""The published format of plans, as models; ``python -m compiler.plan.schema schemas`` writes plan.schema.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal, Never, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema, create_model

from compiler.ir.instructions import KINDS, InstructionBase, RestoreAccumulator, Transform
from compiler.ir.step_graph import Hazard
from compiler.ir.value import Commits, Names, Object
from compiler.passes.policies import POLICIES
from graphspec.declare.decays import DecayKind
from graphspec.declare.schedules import Clock, ScheduleKind


class Exact(BaseModel):
    """A record with exactly these fields."""

    model_config = ConfigDict(extra="forbid")


Version = Annotated[str, Field(pattern="^.+@[0-9]+$", description="A cell at a version: `generator.params@0`.")]
Unless = Annotated[
    list[Names],
    Field(description="Where all verdicts of one of these lists are given, no penalty is added, no window restored."),
]
InWords = Annotated[str, Field(description="A schedule in words.")]
EDGES = sorted({hazard.value for hazard in Hazard} | {"graph", "defer", "order"})


class ReasonRecord(Exact):
    """One reason of a decision."""

    edge: Annotated[str, WithJsonSchema({"enum": [*EDGES]})]
    op: str
    cell: str
    through: Names
    place: str


class DecisionRecord(Exact):
    """Something that the compiler decided."""

    code: str
    subject: str
    text: str
    because: list[ReasonRecord]


class ScheduleRecord(Exact):
    """A number that changes while training: an optimizer's option, an op's, or that of a `schedule` op."""

    optimizer: str = ""
    op: str = ""
    option: str = ""
    kind: ScheduleKind | DecayKind
    clock: Clock | Literal["writes"]
    text: str


class OptimizerRecord(Exact):
    """An optimizer that the mode applies, with every option; a schedule is text."""

    name: str
    rule: str
    models: Names
    options: dict[str, JsonValue]


class WaitRecord(Exact):
    """What holds a write back, for another reason than that it uses the result."""

    edge: Annotated[str, WithJsonSchema({"enum": [*EDGES]})]
    of: Annotated[str, Field(alias="for", description="The `id` of what it waits for.")]
    text: str


class GroupRecord(Exact):
    """A group of a model's parameters."""

    model: str
    match: str
    parameters: Annotated[Names | None, Field(description="Null: named by a class.")]
    lr_scale: float | InWords
    weight_decay: Annotated[float | InWords | None, Field(description="Null: the optimizer's.")]
    optimizer: Annotated[str | None, Field(description="Its own optimizer; null: that of the others.")]
    frozen: bool
    frozen_until: Annotated[
        int | str | None,
        Field(description="The last step, a duration that is not counted yet; null: for ever, never, or counted."),
    ]
    frozen_until_update: Annotated[int | None, Field(description="The last update, where only the run can count it.")]


class WarningRecord(Exact):
    """A warning of the spec."""

    code: str
    op: str
    text: str
    place: str


def _record(kind: type[InstructionBase]) -> type[BaseModel]:
    """Return the model of one kind of instruction; what is empty is left out."""
    fields: dict[str, object] = {"kind": (Literal[kind.kind()], ...), "op": (str, ...)}
    fields |= {name: (type_, ...) for name, type_ in kind.FIELDS.items()}
    fields |= {"id": (str, ""), "reads": (list[Version], []), "writes": (list[Version], []), "commits": (Commits, [])}
    fields |= {"message": (str, ""), "waits": (list[WaitRecord], [])}
    if kind in (Transform, RestoreAccumulator):
        fields["unless"] = Unless, []
    return create_model(kind.__name__, __base__=Exact, **cast("dict[str, Never]", fields))


class MessageRecord(Exact):
    """What every process sends in one message, of a plan for several processes."""

    name: str
    collective: Literal["sum", "gather", "broadcast"]
    values: Names
    start: Annotated[str, Field(description="The `id` of its instruction; left out where it is none.")] = ""
    end: Annotated[str, Field(description="The `id` of the first instruction that waits for it.")] = ""
    bytes: Annotated[int | None, Field(description="What a process has of it; null: not known.")]
    sent: Annotated[int | None, Field(description="The bytes that a process has to send at least; null: not known.")]
    meanwhile: Annotated[Names, Field(description="The forwards and gradients that run before anything waits for it.")]


class FunctionRecord(Exact):
    """The straight-line program of one set of ops that fire together; its instructions are of every kind."""

    name: str
    active: Names
    steps: Annotated[
        str, Field(description="In which steps it runs, in words; left out of a mode with one function.")
    ] = ""
    datasets: Annotated[list[str | None], Field(min_length=1, description="Null: a batch of no named data set.")] = []
    messages: Annotated[list[MessageRecord], Field(description="Of a plan for several processes.")] = []


class PlanRecord(Exact):
    """The schedule of one mode of a compiled training step, and the decisions that led to it."""

    plan: Literal[3]
    name: str
    backend: str
    mode: Literal["train", "eval", "test", "infer"]
    order: Annotated[str, WithJsonSchema({"enum": [*POLICIES]})]
    first_steps: Annotated[
        list[Names],
        Field(
            description="The functions that each of the first 16 steps can take, as long as no update is skipped: "
            "several where something is drawn; empty where the number of a step does not tell."
        ),
    ]
    clocks: Annotated[
        dict[str, str],
        Field(description="By op that writes: in which steps it does, in words: `in steps 2, 4, 6, ...`."),
    ]
    optimizers: list[OptimizerRecord]
    groups: list[GroupRecord]
    schedules: list[ScheduleRecord]
    decisions: list[DecisionRecord]
    warnings: list[WarningRecord]


def plan_schema() -> Object:
    """Return the JSON Schema (draft 2020-12) of what ``Plan.to_json`` returns."""
    first, *others = map(_record, KINDS)
    kinds: object = first
    for other in others:
        kinds = kinds | other
    listed = list[Annotated[kinds, Field(discriminator="kind")]]
    function = create_model("FunctionRecord", __base__=FunctionRecord, instructions=(listed, ...))
    functions = list[function], ...
    plan = create_model("stepgraph plan, version 3", __base__=PlanRecord, functions=functions)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **plan.model_json_schema()}


def main(folder: str) -> None:
    """Write the schema into a folder."""
    text = json.dumps(plan_schema(), indent=2) + "\n"
    Path(folder, "plan.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
