"""``stepgraph run``: train."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import typer

from runtime.cli.completion import complete_run
from runtime.cli.options import (
    Allow,
    Backend,
    CheckpointOption,
    Device,
    Jit,
    JitDynamic,
    Mode,
    Order,
    OrderOption,
    Overrides,
    Root,
    RunFolder,
    SpecPath,
    Xla,
)
from runtime.interrupt import Interrupted
from runtime.processes import Silent
from runtime.terminal import counted, has_moving_lines, say

if TYPE_CHECKING:
    from graphspec.declare.graph import GraphSpec


class Debugging(StrEnum):
    """What a debugged run looks for."""

    nan = "nan"


Framework: TypeAlias = Annotated[
    Backend | None,
    typer.Option("--backend", help="The framework the step is made for (default: torch, or that of the resumed run)."),
]
Seed: TypeAlias = Annotated[int | None, typer.Option("--seed", help="The seed, instead of the spec's.")]
Steps: TypeAlias = Annotated[int | None, typer.Option("--steps", min=1, help="Steps to train, instead of the spec's.")]
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", autocompletion=complete_run, help="The folder to write to (default: runs/<name>)."
    ),
]
PlainOption: TypeAlias = Annotated[bool, typer.Option("--plain", help="Print lines instead of a progress bar.")]
Resume: TypeAlias = Annotated[
    bool, typer.Option("--resume", help="Go on with the run in --out, or with the newest run of the spec.")
]
Debug: TypeAlias = Annotated[
    Debugging | None, typer.Option("--debug", help="nan: stop at the first value that is not finite, and name it.")
]
Replay: TypeAlias = Annotated[
    Path | None, typer.Option("--replay", metavar="DIR", help="Take one step again that --debug nan kept.")
]


Nproc: TypeAlias = Annotated[
    int | None,
    typer.Option("--nproc", min=1, metavar="N", help="Let N processes on this machine take every step together."),
]


def run(
    context: typer.Context,
    spec: SpecPath,
    overrides: Overrides = None,
    backend: Framework = None,
    device: Device = "auto",
    order: OrderOption = Order.fewest,
    seed: Seed = None,
    steps: Steps = None,
    out: Out = None,
    resume: Resume = False,
    debug: Debug = None,
    replay: Replay = None,
    xla: Xla = False,
    jit: Jit = False,
    jit_dynamic: JitDynamic = False,
    allow: Allow = None,
    plain: PlainOption = False,
    root: Root = None,
    nproc: Nproc = None,
) -> None:
    """Train: run the spec's step on its data, and write metrics, curves, pictures and checkpoints."""
    # OpenMP's threads spin while they wait; where another process needs the cores, that makes small steps some twenty
    # times slower. Sleeping costs little. Frameworks read it when they are first imported, so it is set before that.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from graphspec.loading import load
    from runtime.train.run import Request, perform, retake

    declared = load(spec, overrides or (), root=root)
    if nproc is not None and nproc > 1:
        _launch(context, declared, nproc, backend)
        return
    request = Request(
        path=spec,
        spec=declared,
        overrides=tuple(overrides or ()),
        backend=None if backend is None else backend.value,
        order=order.value,
        device=device,
        seed=seed,
        steps=steps,
        out=out,
        allow=allow or (),
        resume=resume,
        debug="nan" if debug is not None or replay is not None else None,
        jit_compile=xla,
        jit="dynamic" if jit_dynamic else "step" if jit else None,
        stream=sys.stdout,
        moving=not plain and has_moving_lines(sys.stdout),
    )
    if replay is not None:
        outputs = "".join(f"  {name} {value:.6g}" for name, value in retake(request, replay).items())
        say(f"the step raises nothing and everything is finite{outputs}")
        return
    outcome = perform(request)
    if outcome.interrupted:
        text = f"interrupted ({outcome.interrupted}) after step {outcome.state.made:,}"
        raise Interrupted(f"{text}; what was trained so far is saved, and --resume continues from there")


def _launch(context: typer.Context, spec: GraphSpec, count: int, backend: Backend | None) -> None:
    """Run the command in several processes, and exit with their code."""
    from runtime.registry import find_backend
    from runtime.train.run import DEFAULT
    from runtime.train.together import require_replicated, require_rows

    given = context.params
    require_replicated(spec, count, is_debugging=given["debug"] is not None or given["replay"] is not None)
    require_rows(spec, count)
    words: list[str] = []
    for each in context.command.params:
        value, name = given[each.name or ""], each.opts[0]
        if each.name == "nproc" or value in (None, False):
            continue
        for one in cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]:
            text = str(one)  # of an enumeration its value
            words += [text] if each.param_type_name == "argument" else [name] if value is True else [name, text]
    code = find_backend(DEFAULT if backend is None else backend.value).launch(count, ["run", *words])
    if code:
        raise Silent(code)  # one of them has said why


Data: TypeAlias = Annotated[
    str | None,
    typer.Option("--data", metavar="ROLE|FILE", help="A set of the spec's `data`, or a file in place of one."),
]


class EvalFormat(StrEnum):
    """The forms in which figures are printed."""

    text = "text"
    json = "json"


EvalFormatOption: TypeAlias = Annotated[EvalFormat, typer.Option("--format", help="How the figures are printed.")]


def evaluate(
    run: RunFolder,
    data: Data = None,
    checkpoint: CheckpointOption = "best",
    device: Device = "auto",
    xla: Xla = False,
    allow: Allow = None,
    format: EvalFormatOption = EvalFormat.text,
) -> None:
    """Evaluate a run: one pass over a data set with the weights of its best checkpoint, or of another."""
    from runtime.train.reopen import Question, evaluate_run

    given = tuple(allow or ())
    question = Question(folder=run, data=data, choice=checkpoint, device=device, allow=given, jit_compile=xla)
    answer = evaluate_run(question)
    if format is EvalFormat.json:
        figures = {name: value if math.isfinite(value) else None for name, value in answer.figures.items()}
        say(json.dumps({"checkpoint": str(answer.path), "data": answer.data, "figures": figures}))
        return
    say(f"{answer.path} on {answer.data}")
    width = max(map(len, answer.figures), default=0)
    for name, value in answer.figures.items():
        say(f"  {name:{width}}  {value:.10g}")


class ExportFormat(StrEnum):
    """What is exported."""

    weights = "weights"
    program = "program"
    both = "both"


Folder: TypeAlias = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="DIR", help="The folder to write (default: RUN_DIR/export).")
]
ModeOption: TypeAlias = Annotated[
    Mode | None, typer.Option("--mode", help="The mode of the program (default: infer, else eval).")
]
Values: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--value", metavar="NAME", help="What the program gives (default: all outputs). May be repeated."),
]
ExportFormatOption: TypeAlias = Annotated[ExportFormat, typer.Option("--format", help="What is exported.")]


def export(
    run: RunFolder,
    out: Folder = None,
    checkpoint: CheckpointOption = "best",
    mode: ModeOption = None,
    value: Values = None,
    device: Device = "cpu",
    allow: Allow = None,
    format: ExportFormatOption = ExportFormat.both,
) -> None:
    """Export a run: the weights of its best checkpoint as safetensors files, and a mode that runs without stepgraph."""
    from graphspec.declare.ops import EmaOp
    from runtime.train.reopen import reopen_run

    opened = reopen_run(run, choice=checkpoint, device=device, allow=allow or (), recalls=True)
    recomputed = opened.recompute_statistics()
    exported = opened.step.export(
        run / "export" if out is None else out,
        format=format.value,
        mode=None if mode is None else mode.value,
        values=value or (),
        origin={"run": str(run), "checkpoint": opened.path.name},
    )
    say(f"{exported.folder} from {opened.path.name}")
    program = exported.program
    width = max(map(len, (*(each.file for each in exported.models.values()), "" if program is None else program.file)))
    for name, model in exported.models.items():
        owner = "" if model.source == name else f" of {model.source}, which stands in for {name}"
        others = {each.target(op): each for op, each in opened.spec.ops.items() if isinstance(each, EmaOp)}
        is_read = model.source in recomputed and (model.source != name or others[name].use.eval == "separate")
        owner += ", its statistics computed anew" if is_read else ""
        apart = [target for target, each in others.items() if each.ema == name and model.source == name]
        owner += f" as trained; {', '.join(apart)} {'does' if len(apart) == 1 else 'do'} not stand in" if apart else ""
        owner += " as it began: the average was not taken yet" if model.source in exported.untaken else ""
        say(f"  {model.file:{width}}  {counted(len(model.packed.tensors), 'tensor')}{owner}")
        for note in model.packed.notes:
            say(f"  {'':{width}}  {note}")
    if program is not None:
        pure, inputs = program.pure, list[str]()
        for entry in pure.program.inputs:
            kind = "a draw, " if entry.name in pure.drawn else ""
            inputs.append(f"{entry.name} ({kind}{entry.dtype} [{', '.join(map(str, entry.shape or ()))}])")
        computed = f"{', '.join(inputs) or 'nothing'} -> {', '.join(pure.outputs)}"
        left = f" (without {', '.join(pure.left_out)})" if pure.left_out else ""
        say(f"  {program.file:{width}}  mode {pure.mode}: {computed}{left}")


SigmaRel: TypeAlias = Annotated[
    float | None,
    typer.Option("--sigma-rel", metavar="WIDTH", help="The width of the average, as a share of its length: 0.07."),
]
Uniform: TypeAlias = Annotated[
    str | None, typer.Option("--uniform", metavar="PATTERN", help="Average the weights of these checkpoints: 'step-*'.")
]
AverageNames: TypeAlias = Annotated[
    list[str] | None, typer.Option("--average", metavar="NAME", help="A power average to use. May be repeated.")
]
ModelName: TypeAlias = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="The model, where the run averages or trains several.")
]
WeightsFile: TypeAlias = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="FILE", help="The file to write (default: in RUN_DIR).")
]
WIDEST = 0.2886
"""The width of the average in which all weights count the same is 1 / sqrt(12)."""


def average(
    run: RunFolder,
    sigma_rel: SigmaRel = None,
    uniform: Uniform = None,
    average: AverageNames = None,
    model: ModelName = None,
    checkpoint: CheckpointOption = "newest",
    out: WeightsFile = None,
    device: Device = "cpu",
    allow: Allow = None,
) -> None:
    """Average over the checkpoints of a run: power averages to another width, or weights uniformly."""
    if (sigma_rel is None) == (uniform is None):
        raise typer.BadParameter("an average has a width or is uniform", param_hint="'--sigma-rel' or '--uniform'")
    if sigma_rel is not None and not 0 < sigma_rel < WIDEST:
        raise typer.BadParameter(f"a width is between 0 and {WIDEST}", param_hint="'--sigma-rel'")
    if average and uniform is not None:
        raise typer.BadParameter("power averages have no part in a uniform one", param_hint="'--average'")
    from runtime.train.average_run import AverageRequest, average_run

    made = average_run(
        AverageRequest(
            folder=run,
            out=out,
            sigma_rel=sigma_rel,
            uniform=uniform or "",
            averages=tuple(average or ()),
            model=model,
            choice=checkpoint,
            device=device,
            allow=tuple(allow or ()),
        )
    )
    say(f"{made.path} with {counted(len(made.packed.tensors), 'tensor')} of {made.model}")
    for note in made.packed.notes:
        say(f"  {note}")
    names = made.snapshots
    shown = names if len(names) <= 4 else (names[0], names[1], "...", names[-1])
    say(f"  from {counted(len(names), 'snapshot')}: {', '.join(shown)}")
    if made.fit is not None:
        fit = made.fit
        say(f"  sigma_rel {sigma_rel:g}, gamma {made.gamma:.4g}: error of the profile {fit.error:.2g} (L2, relative)")
        say(f"  weights from {min(fit.weights):.3g} to {max(fit.weights):.3g}: rounding times {fit.amplification:.3g}")
