"""Rules on when ops run: first and last steps, and modes and data sets for which what an op reads is not computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphspec.analysis.datasets import UNNAMED, find_datasets, find_declared, find_places
from graphspec.analysis.evaluation import (
    find_eval_mode,
    find_goal,
    find_image_mode,
    find_recomputed,
    find_returned,
    find_role,
    find_watched_mode,
)
from graphspec.analysis.modes import find_producers, find_reaches, find_references, is_bound
from graphspec.analysis.scope import RuleContext
from graphspec.declare.data import TrainingSets
from graphspec.declare.ops import MODES, CopyOp, EmaOp, ForwardOp, ModeName, UpdateOp
from graphspec.declare.run import BestSpec, StopSpec
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path
from graphspec.words import did_you_mean, enumerate_names


def check_windows(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse an op whose end comes before its start; moments in different units are left to the compiler."""
    for name, op in scope.sound_ops():
        start, until = op.start, op.until
        if start is None or until is None or start.unit != until.unit:
            continue
        match start.unit:
            case "epochs":  # an epoch is a stretch: an op that ends with epoch 2 may start in it
                never_runs = start.count >= until.count + 1
            case "run":  # a share of the run is a point between two steps
                never_runs = start.count >= until.count
            case "steps" | "updates" | "samples":
                never_runs = start.count > until.count
        if never_runs:
            first, last = (f"step {each.count:g}" if each.unit == "steps" else str(each) for each in (start, until))
            message = f"op '{name}' never runs: it starts at {first} and ends with {last}"
            help = "both count from 1, and `until` is the last step it runs in"
            yield scope.report("GS120", message, ("ops", name, "until"), help=help)


def check_iterations(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse an average or copy that counts iterations some of which may be skipped: the step would not know before."""
    updates = (op for op in scope.spec.ops.values() if isinstance(op, UpdateOp))
    may_skip = scope.spec.loss_scale is not None or any(
        op.on_overflow not in (None, "apply", "error") for op in updates
    )
    for name, op in scope.sound_ops():
        if not (may_skip and isinstance(op, EmaOp | CopyOp) and any(part.repeat for part in op.within)):
            continue
        field = "every" if isinstance(op.every, int) and op.every > 1 else ""
        if not field and isinstance(op, EmaOp) and op.is_counted:
            field = "init" if op.init is not None else "decay" if op.formula else "start"
        if field:
            message = f"'{name}' counts iterations, some of which may be skipped where gradients are not finite"
            help = "put it outside of the iterations, or write `on_overflow: apply` and no loss scale"
            yield scope.report("GS069", message, ("ops", name, field), help=help)


def check_batches(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse training data that does not give every step several whole batches of one data set."""
    train, count = scope.spec.data.get("train"), scope.spec.batches
    if train is None or count == 1:
        return
    if isinstance(train, TrainingSets):
        message = f"a step takes {count} batches, and training sets take turns"
        help = "declare one set, or write `batch: split` or `batch: reuse`"
        yield scope.report("GS069", message, ("data", "train"), key=True, help=help)
    elif not train.drops_last("train"):
        message = f"a step takes {count} batches, which have equally many rows"
        yield scope.report("GS069", message, ("data", "train", "drop_last"), help="leave out `drop_last: false`")


def check_modes(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse an op that runs in a mode in which a value it reads is not computed."""
    ops, reaches = scope.spec.ops, find_reaches(scope.spec)
    sources, producers = find_references(scope.spec), find_producers(scope.spec)
    for name, op in scope.sound_ops():
        for reference, source in sources[name] if is_bound(op) else ():
            blockers = reaches[source].blockers
            missing: list[ModeName] = [mode for mode in MODES if op.runs_in(mode) and mode in blockers]
            if missing and (reaches[source].modes or is_bound(ops[source])):
                blocker = blockers[missing[0]]
                message = f"op '{name}' runs in {' and '.join(missing)} mode, where '{reference.name}' is not computed"
                needs = "" if source == blocker else f"'{source}' needs '{blocker}', and "
                notes = (f"{needs}{_say_modes(scope, blocker)}",)
                help = f"change `mode` of op '{blocker}' or of this op"
                yield scope.report("GS119", message, ("ops", name, *reference.path), notes=notes, help=help)
        if not (is_bound(op) or reaches[name].modes) and all(reaches[source].modes for source in producers[name]):
            blocking = sorted(set(reaches[name].blockers.values()), key=list(ops).index)
            notes = tuple(_say_modes(scope, each) for each in blocking)
            message = f"op '{name}' runs in no mode: the values it reads are never computed together"
            yield scope.report("GS119", message, ("ops", name), key=True, notes=notes, help="change one of these modes")


def _say_modes(scope: RuleContext, name: str) -> str:
    op = scope.spec.ops[name]
    return f"op '{name}' runs in {' and '.join(mode for mode in MODES if op.runs_in(mode)) or 'no'} mode only"


def check_meetings(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse an op that runs on batches on which a value it reads is not made."""
    datasets, places = find_datasets(scope.spec), find_places(scope.spec)
    sources, producers = find_references(scope.spec), find_producers(scope.spec)

    def say(name: str) -> str:
        """Return on batches of which data sets an op runs."""
        return enumerate_names(each or "no data set" for each in (*datasets, UNNAMED) if each in places[name])

    for name, op in scope.sound_ops() if datasets else ():
        for reference, source in sources[name] if op.dataset is not None else ():
            missing = [each or "none" for each in (*datasets, UNNAMED) if each in places[name] - places[source]]
            if missing and places[source]:
                made = f"where '{reference.name}' is not computed"
                message = f"op '{name}' runs on batches of {enumerate_names(missing)}, {made}"
                notes = (f"'{reference.name}' is computed on batches of {say(source)}",)
                help = f"change `dataset` of '{source}' or '{name}'"
                yield scope.report("GS132", message, ("ops", name, *reference.path), notes=notes, help=help)
        only_trains = [mode for mode in MODES if op.runs_in(mode)] == ["train"]
        if op.dataset is not None and only_trains and places[name] <= {UNNAMED}:
            message = f"op '{name}' runs on no data set: a training batch is one of {enumerate_names(datasets)}"
            help = "name the data sets it runs on, or declare all of them under `data.train`"
            yield scope.report("GS132", message, ("ops", name, "dataset"), help=help)
        if op.dataset is None and not places[name] and all(places[source] for source in producers[name]):
            notes = tuple(f"'{each}' runs on batches of {say(each)}" for each in producers[name])
            message = f"op '{name}' runs on no data set: the values it reads never come from one batch"
            help = "write one op for each data set: an update of each loss instead of one of their sum"
            yield scope.report("GS132", message, ("ops", name), key=True, notes=notes, help=help)


def check_datasets(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check that every data set that an op or the evaluation names is one of the training sets, where there are any."""
    spec, declared = scope.spec, find_declared(scope.spec)
    if scope.blind or "train" not in spec.data:
        return
    named: list[tuple[str, str, Path]] = [
        (f"`dataset` of op '{name}'", word.removeprefix("!"), ("ops", name, "dataset", index))
        for name, op in scope.sound_ops()
        for index, word in enumerate(op.dataset or ())
    ]
    if spec.run.eval is not None and spec.run.eval.dataset is not None:
        named.append(("`run.eval`", spec.run.eval.dataset, ("run", "eval", "dataset")))
    has = f"has {enumerate_names(declared)}" if declared else "is one set without a name"
    for field, name, path in named:
        if name not in declared:
            message = f"{field} names the data set '{name}', but `data.train` {has}"
            help = "declare it under `data`, as in `train: {ds1: {source: ...}, ds2: {source: ...}}`, or fix the name"
            yield scope.report("GS131", message, path, label=did_you_mean(name, declared), help=help)


def check_evaluation(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check that an evaluation has samples, and something to return."""
    spec = scope.spec
    if spec.run.eval is None or scope.blind:
        return
    role, is_written = find_role(spec), spec.run.eval.data is not None
    if role not in spec.data and role not in scope.broken:
        known = f"; it has {enumerate_names(spec.data)}" if spec.data else ""
        message = f"`run.eval` evaluates on '{role}', a set that `data` does not have{known}"
        help = f"declare it under `data`, as in `{role}: {{source: ...}}`, or name another: `eval: {{data: ...}}`"
        path: Path = ("run", "eval", "data") if is_written else ("run", "eval")
        label = did_you_mean(role, spec.data)
        yield scope.report("GS124", message, path, key=not is_written, label=label, help=help)
    mode = spec.run.eval.mode
    if not find_returned(spec, mode) and not scope.broken:
        message = f"`run.eval` evaluates in {mode} mode, in which the step returns nothing"
        help = "add a `metric` op, or name the values to evaluate in `outputs`"
        yield scope.report("GS126", message, ("run", "eval"), key=True, help=help)


def check_recomputed(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check that averages whose statistics are computed anew have a set of data, and are called in evaluations."""
    spec, mode = scope.spec, find_eval_mode(scope.spec)
    reaches, recomputed = find_reaches(spec), find_recomputed(spec)
    if not recomputed:
        return
    called = {op.forward for name, op in spec.ops.items() if isinstance(op, ForwardOp) and mode in reaches[name].modes}
    for name, role in recomputed.items():
        path, op = ("ops", name, "use", "recompute_buffers"), spec.ops[name]
        if role not in spec.data and role not in scope.broken and not scope.blind:
            known = f"; it has {enumerate_names(spec.data)}" if spec.data else ""
            message = f"'{name}' takes its statistics from '{role}', a set that `data` does not have{known}"
            help = f"declare it under `data`, as in `{role}: {{source: ...}}`, or name another"
            yield scope.report("GS124", message, path, label=did_you_mean(role, spec.data), help=help)
        if not isinstance(op, EmaOp) or scope.broken:
            continue
        if name in called or (op.use.eval == "swap" and op.ema in called):
            if not find_returned(spec, mode):
                message = f"the statistics of '{name}' are computed for evaluations, and {mode} mode returns nothing"
                help = "add a `metric` op, or name the values to evaluate in `outputs`"
                yield scope.report("GS126", message, path, help=help)
        else:
            message = f"the statistics of '{name}' are computed for evaluations, and none calls it in {mode} mode"
            help = f"write `use: {{eval: swap}}`, or call it: `{{forward: {name}, ..., mode: {mode}}}`"
            yield scope.report("GS126", message, path, help=help)


def check_images(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check that the value of the images is returned, and the set whose batch makes them there and for its mode."""
    spec, images = scope.spec, scope.spec.run.images
    if images is None or scope.blind or images.value in scope.broken:
        return
    path, mode, entry = ("run", "images", "data"), find_image_mode(spec), scope.find(images.value)
    if images.data is not None and images.data not in spec.data and images.data not in scope.broken:
        known = f"; it has {enumerate_names(spec.data)}" if spec.data else ""
        message = f"`run.images` takes a batch of '{images.data}', a set that `data` does not have{known}"
        help = f"declare it under `data`, as in `{images.data}: {{source: ...}}`, or leave it out: a batch of `train`"
        yield scope.report("GS124", message, path, label=did_you_mean(images.data, spec.data), help=help)
    if mode is None and images.value not in find_returned(spec, "train"):
        # One that is no value of an op at all is reported where names are checked, except an input or a state.
        if entry is not None and not {"value", "input", "state"}.isdisjoint(entry.facets):
            offered = tuple(dict.fromkeys(name for each in MODES for name in find_returned(spec, each)))
            message, label = f"`run.images` shows '{images.value}', which the step does not return", ""
            help = f"add '{images.value}' to `outputs`"
            if "value" not in entry.facets:
                help = f"show the value of an op; the step returns {enumerate_names(offered) or 'nothing'}"
            elif spec.outputs is None:
                help = f"write `outputs: [{', '.join((*offered, images.value))}]`"
            else:
                label = did_you_mean(images.value, offered)
            yield scope.report("GS230", message, ("run", "images", "value"), label=label, help=help)
    elif mode is None and images.data in spec.data:
        message = f"'{images.value}' is made by the steps of training, which take the batches of `data.train`"
        help = (
            "leave out `data`, or return the value in another mode: `mode: infer` on its op, and its name in `outputs`"
        )
        yield scope.report("GS124", message, path, help=help)


def check_watched(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check that `best` and `stop` go by a figure that is returned, and of which less or more is better."""
    run = scope.spec.run
    watches: Mapping[str, BestSpec | StopSpec | None] = {"best": run.best, "stop": run.stop}
    mode = find_watched_mode(scope.spec)
    returned = find_returned(scope.spec, mode)
    for field, watch in watches.items():
        if watch is None or scope.blind or watch.metric in scope.broken:
            continue
        path: Path = ("run", field, "metric")
        if watch.metric not in returned:
            # An evaluation that returns nothing at all is reported once, where it is requested.
            if returned or run.eval is None:
                found = f"it returns {enumerate_names(returned)}" if returned else "it returns nothing"
                message = f"`run.{field}` uses '{watch.metric}', which the step does not return in {mode} mode; {found}"
                label, help = did_you_mean(watch.metric, returned), _suggest_figure(scope, watch.metric, mode)
                yield scope.report("GS123", message, path, label=label, help=help)
        elif find_goal(scope.spec, watch) is None:
            message = f"`run.{field}` does not say whether a lower or a higher '{watch.metric}' is better"
            yield scope.report("GS125", message, path, help="also write `mode: min` or `mode: max`")


def _suggest_figure(scope: RuleContext, name: str, mode: ModeName) -> str:
    """Return how to make the step return a figure, or to name another."""
    if scope.spec.run.eval is None and name in find_returned(scope.spec, "eval"):
        return "it is returned in eval mode: add `eval: {every: 1 epochs}` to `run`"
    entry = scope.find(name)
    if entry is None or "value" not in entry.facets or entry.op is None:
        return "write the name of a scalar output"
    if mode not in find_reaches(scope.spec)[entry.op].modes:
        return f"'{name}' is not computed in {mode} mode: name another figure, or change the `mode` of '{entry.op}'"
    if scope.spec.outputs is not None:
        return f"add '{name}' to `outputs`, if it is one number"
    shown = find_returned(scope.spec, mode)
    return f"write `outputs: [{', '.join((*shown, name))}]`, if it is one number"
