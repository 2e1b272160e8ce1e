"""What a run evaluates, and the figures by which it keeps its best and stops."""

from __future__ import annotations

import pytest

from graphspec import load
from graphspec.analysis.evaluation import find_goal, find_returned, find_role, find_watched_mode

OPS = """
hits: {metric: accuracy, inputs: [out, y]}
size: {metric: mean, inputs: out}
mine: {metric: "zoo.a:far", inputs: out}
"""
TEST = "data: {test: {source: npz, path: x.npz, batch: 2}}\n"


def test_a_duration_alone_says_how_often(small):
    run = load(small(ops=OPS, more=f"{TEST}run: {{eval: 100, checkpoint: 2 epochs}}\n")).run
    assert run.eval is not None
    assert run.checkpoint is not None
    assert (str(run.eval.every), run.eval.mode) == ("100 steps", "eval")
    assert (str(run.checkpoint.every), run.checkpoint.keep) == ("2 epochs", 3)


def test_an_evaluation_comes_at_the_end_of_every_epoch_if_nothing_else_is_said(small):
    run = load(small(ops=OPS, more=f"{TEST}run: {{eval: {{}}}}\n")).run
    assert run.eval is not None
    assert str(run.eval.every) == "1 epochs"


@pytest.mark.parametrize("every", ["3 steps", "2 epochs", "5 updates", "1k samples", "0.1 run"])
def test_pictures_come_in_every_unit(small, every):
    assert load(small(more=f"outputs: [err, out]\nrun: {{images: {{value: out, every: {every}}}}}\n"))


@pytest.mark.parametrize(
    ("names", "written", "found"),
    [
        (("train", "test", "eval"), "", "test"),
        (("train", "eval"), "", "eval"),
        (("train", "eval"), "data: train", "train"),
    ],
)
def test_the_set_of_an_evaluation_is_test_or_eval_or_what_it_names(small, names, written, found):
    data = ", ".join(f"{name}: {{source: npz, path: x.npz, batch: 2}}" for name in names)
    spec = load(small(ops=OPS, more=f"data: {{{data}}}\nrun: {{eval: {{{written}}}}}\n"))
    assert find_role(spec) == found


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("run: {best: {metric: «hit»}}", "GS123"),
        ("run: {stop: {metric: «out», patience: 2}}", "GS123"),
        ("run: {stop: {metric: «net», patience: 2}}", "GS123"),
        ("run: {eval: {data: test}, best: {metric: «err»}}", "GS123"),
        ("run: {eval: {data: «tests»}}", "GS124"),
        ("run: {eval: {mode: «train»}}", "GS043"),
        ("run: {best: {metric: «size»}}", "GS125"),
        ("run: {stop: {metric: «mine», patience: 2}}", "GS125"),
        ("outputs: [err]\nrun: {best: {metric: «hits»}}", "GS123"),
        ("outputs: []\nrun: {«eval»: {}, best: {metric: hits}}", "GS126"),
    ],
)
def test_a_wrong_figure_is_told_where_it_stands(small, find, line, code):
    found = find(small(ops=OPS, more=f"{TEST}{line}\n"))
    assert found.codes == (code,)
    assert found.places == found.marks


def test_an_evaluation_needs_data(small, find):
    assert find(small(ops=OPS, more="run: {«eval»: 1 epochs}\n")).codes == ("GS124",)


@pytest.mark.parametrize(
    ("line", "help"),
    [
        ("run: {best: {metric: late}}", "add `eval: {every: 1 epochs}` to `run`"),
        ("run: {eval: {}, best: {metric: err}}", "write `outputs: [hits, size, mine, late, err]`"),
        ("outputs: [hits]\nrun: {eval: {}, best: {metric: err}}", "add 'err' to `outputs`"),
        ("run: {eval: {}, best: {metric: early}}", "'early' is not computed in eval mode"),
    ],
)
def test_the_remedy_fits_what_is_missing(small, find, line, help):
    late = "late: {metric: accuracy, inputs: [out, y], mode: eval}\nearly: {metric: mean, inputs: out, mode: train}"
    (only,) = find(small(ops=f"{OPS}{late}", more=f"{TEST}{line}\n")).diagnostics
    assert help in only.help


def test_a_slip_of_the_pen_is_told_with_what_was_meant(small, find):
    (only,) = find(small(ops=OPS, more="run: {best: {metric: hist}}\n")).diagnostics
    assert only.label == "did you mean 'hits'?"


def test_of_a_loss_less_is_better_and_of_an_accuracy_more(small):
    run = "run: {best: {metric: err}, stop: {metric: hits, patience: 2}}\n"
    spec = load(small(ops=OPS, more=run))
    assert spec.run.best is not None
    assert spec.run.stop is not None
    assert (find_goal(spec, spec.run.best), find_goal(spec, spec.run.stop)) == ("min", "max")


def test_what_is_written_goes_before_what_follows(small):
    spec = load(small(ops=OPS, more="run: {best: {metric: err, mode: max}}\n"))
    assert spec.run.best is not None
    assert find_goal(spec, spec.run.best) == "max"


def test_the_outputs_of_a_mode_are_those_of_the_compiled_step(small):
    from compiler import compile_step
    from compiler.ir.instructions import Emit

    spec = load(small(ops=OPS, more=f"{TEST}run: {{eval: {{mode: infer}}}}\n"))
    assert find_watched_mode(spec) == "infer"
    for mode in ("train", "eval", "infer"):
        functions = compile_step(spec).program.mode(mode).functions
        values = {
            name for each in functions for item in each.instructions if isinstance(item, Emit) for name in item.values
        }
        assert values == set(find_returned(spec, mode))


def test_nothing_is_held_against_a_figure_of_an_op_that_could_not_be_read(small, find):
    text = small(ops="hits: {metric: accuracy, «input»: [out, y]}", more="run: {best: {metric: hits}}\n")
    assert find(text).codes == ("GS040",)
