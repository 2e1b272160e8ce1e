"""What the compiler refuses and warns of: each code where it must fire, and where it must not."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from tests.compiler.conftest import PRELUDE, PROGRAMS, codes, compiled, document, problems, program, told

STEP_A = """
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
"""
STEP_B = """
  fb: {forward: b, inputs: x}
  lb: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: lb}
"""
STEP_N = """
  fn: {forward: n, inputs: x}
  ln: {loss: mse, inputs: [fn, y]}
  step_n: {update: n, loss: ln}
"""
TIED = """\
graphspec: 1
name: tied
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 4]}}
models:
  a: {class: "zoo:A", traits: {buffers: false, rng: false, batch_coupled: false}, optimizer: sgd}
  b: {class: "zoo:B", traits: {buffers: false, rng: false, batch_coupled: false, ties: [a.weight]}, optimizer: sgd}
  c: {class: "zoo:C", traits: {buffers: false, rng: false, batch_coupled: false, ties: [b.bias]}, optimizer: sgd}
"""

UNSEEN = """\
graphspec: 1
name: unseen
inputs: {x: {}, y: {}}
models:
  a: {class: "zoo:A", optimizer: sgd}
  slow_a: {like: a}
"""
"""A model whose class declares no traits."""


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.yaml")))
def test_published_programs_give_no_warning(name, backend):
    assert program(name, backend=backend).warnings == ()


# ---------------------------------------------------------------- E-CYCLE


def test_a_forward_after_the_update_that_its_own_loss_feeds_is_a_cycle():
    found = problems(STEP_A.replace("inputs: x}", "inputs: x, after: step_a}"))
    assert [one.code for one in found] == ["E-CYCLE"]
    assert set(found[0].notes) == {
        "forward fa before evaluate la: evaluate la uses the value fa",
        "evaluate la before gradient step_a: gradient step_a uses the value la",
        "gradient step_a before apply step_a: apply step_a uses the value step_a",
        "apply step_a before forward fa: fa is declared `after: step_a`",
    }
    assert "forward fa -> evaluate la -> gradient step_a -> apply step_a" in found[0].message


def test_values_that_need_each_other_are_a_cycle():
    found = problems("""
  one: {call: neg, inputs: two}
  two: {call: neg, inputs: one}
outputs: [one]""")
    assert [one.code for one in found] == ["E-CYCLE"]
    assert len(found[0].notes) == 2


def test_averages_of_each_other_are_a_cycle():
    assert codes("""
  there: {ema: slow_a, into: slower_a, decay: 0.9}
  back: {copy: slower_a, into: slow_a}
""") == ["E-CYCLE"]


def test_every_cycle_is_told_and_so_is_what_else_is_wrong():
    cyclic = (STEP_A + STEP_B).replace("a, inputs: x}", "a, inputs: x, after: step_a}")
    both = cyclic.replace("b, inputs: x}", "b, inputs: x, after: step_b}")
    assert codes(both).count("E-CYCLE") == 2
    more = cyclic + STEP_N + "  follow: {ema: n, into: slow_n, decay: 0.9}\n"
    assert set(codes(more)) == {"E-CYCLE", "E-BUFFERS"}


# ---------------------------------------------------------------- E-UNORDERED-WRITES, E-OVERLAP, E-EMA-TARGET


def test_two_losses_on_one_model_need_an_order_or_a_sum():
    both = STEP_A + "  other: {loss: l1, inputs: [fa, y]}\n  twice: {update: a, loss: other}\n"
    assert ("E-UNORDERED-WRITES", "step_a") in told(problems(both))
    ordered = both.replace("loss: other}", "loss: other, after: step_a}")
    assert codes(ordered) == ["W-STALE"]
    added = both.replace("  twice: {update: a, loss: other}\n", "").replace(
        "step_a: {update: a, loss: la}", "total: {call: add, inputs: [la, other]}\n  step_a: {update: a, loss: total}"
    )
    assert codes(added) == []


def test_two_averages_into_one_model_need_an_order():
    both = STEP_A + STEP_B + "  one: {ema: a, into: slow_a, decay: 0.9}\n  two: {copy: b, into: slow_a, AFTER}\n"
    assert "E-UNORDERED-WRITES" in codes(both.replace(", AFTER", ""))
    assert codes(both.replace("AFTER", "after: one")) == []


def test_updates_that_never_fire_in_one_step_need_no_order():
    ops = """
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  lb: {loss: l1, inputs: [fa, y]}
  early: {update: a, loss: la, until: 100 steps}
  late: {update: a, loss: lb, start: 101 steps}
"""
    assert codes(ops) == []


def test_train_mode_forwards_are_no_unordered_writes():
    assert codes(STEP_N + "  again: {forward: n, inputs: y}\noutputs: [again]") == []


def test_one_storage_has_one_optimizer():
    other = (
        STEP_A + "  lc: {loss: l1, inputs: [fa, y]}\n  twice: {update: a, loss: lc, after: step_a, optimizer: adam}\n"
    )
    assert "E-OVERLAP" in codes(other)
    assert codes(other.replace(", optimizer: adam", "")) == ["W-STALE"]


@pytest.mark.parametrize(
    ("update", "found"),
    [
        ("  step: {update: [a, b], loss: l}\n", ["E-OVERLAP"]),
        ("  step: {update: [a, b], loss: l, optimizer: sgd}\n", []),
        ("  step: {update: a, loss: l}\n", []),
    ],
)
def test_tied_weights_have_one_optimizer(update, found):
    ops = "  fa: {forward: a, inputs: x}\n  fb: {forward: b, inputs: fa}\n  l: {loss: mse, inputs: [fb, y]}\n" + update
    assert codes(ops, prelude=TIED) == found


def test_ties_of_ties_are_one_storage():
    ops = """
  fa: {forward: a, inputs: x}
  fc: {forward: c, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  lc: {loss: mse, inputs: [fc, y]}
  step_a: {update: a, loss: la}
  step_c: {update: c, loss: lc, after: step_a}
"""
    assert "E-OVERLAP" in codes(ops, prelude=TIED)


def test_an_average_goes_into_a_model_that_nothing_else_steps():
    assert codes(STEP_A + STEP_B + "  follow: {ema: a, into: b, decay: 0.9}\n").count("E-EMA-TARGET") == 1
    assert codes(STEP_A + STEP_B + "  follow: {copy: a, into: b}\n").count("E-EMA-TARGET") == 1
    assert codes(STEP_A + "  follow: {ema: a, into: slow_a, decay: 0.9}\n") == []


def test_an_average_does_not_go_into_its_own_source():
    assert "E-EMA-TARGET" in codes(STEP_A + "  follow: {ema: slow_a, into: slow_a, decay: 0.9}\n")
    tied = "  fa: {forward: a, inputs: x}\n  l: {loss: mse, inputs: [fa, y]}\n  step: {update: a, loss: l}\n"
    assert "E-EMA-TARGET" in codes(tied + "  follow: {copy: a, into: b}\n", prelude=TIED)


# ---------------------------------------------------------------- E-BUFFERS, W-FROZEN-TRAIN


@pytest.mark.parametrize("policy", ["copy", "average", "ignore"])
def test_an_average_of_a_model_with_buffers_says_what_becomes_of_them(policy):
    follow = "  follow: {ema: n, into: slow_n, decay: 0.9}\n"
    assert codes(STEP_N + follow) == ["E-BUFFERS"]
    assert codes(STEP_N + follow.replace("0.9", f"0.9, buffers: {policy}")) == []
    assert codes(STEP_A + follow.replace("n, into: slow_n", "a, into: slow_a")) == []


def test_the_policy_may_stand_on_the_model():
    prelude = document("  z: {call: neg, inputs: x}").split("ops:")[0].replace("{like: n}", "{like: n, buffers: copy}")
    assert codes(STEP_N + "  follow: {ema: n, into: slow_n, decay: 0.9}\n", prelude=prelude) == []


def test_a_target_that_runs_in_train_mode_keeps_its_own_statistics():
    target = "  seen: {forward: slow_n, inputs: y, train: true}\n"
    follow = "  follow: {ema: n, into: slow_n, decay: 0.9, buffers: POLICY}\noutputs: [seen]"
    assert "E-BUFFERS" in codes(STEP_N + target + follow.replace("POLICY", "copy"))
    assert codes(STEP_N + target + follow.replace("POLICY", "ignore")) == []


def test_of_a_class_without_traits_the_worst_is_assumed_and_said():
    found = problems(STEP_A + "  follow: {ema: a, into: slow_a, decay: 0.9}\n", prelude=UNSEEN)
    assert [(one.code, one.severity) for one in found] == [("E-BUFFERS", "warning")]
    assert "assumed" in found[0].message
    notes = compiled(STEP_A, prelude=UNSEEN).notes
    assert (
        notes[0]
        == "assumed of 'a', whose class declares no such traits: buffers, rng, batch_coupled, no recomputed forwards"
    )


def test_a_model_that_is_never_updated_does_not_drift_unnoticed():
    drifting = STEP_A + "  seen: {forward: m, inputs: y, train: true}\noutputs: [seen]"
    assert codes(drifting) == ["W-FROZEN-TRAIN"]
    assert codes(drifting.replace(", train: true", "")) == []
    assert codes(drifting.replace("forward: m", "forward: b")) == []
    prelude = (
        document("  z: {call: neg, inputs: x}")
        .split("ops:")[0]
        .replace("  m: {layers", "  m: {buffers: ignore, layers")
    )
    assert codes(drifting, prelude=prelude) == []


# ---------------------------------------------------------------- E-NO-GRADIENT


def test_a_loss_that_does_not_depend_on_its_model_is_an_error():
    assert codes(
        "  fb: {forward: b, inputs: x}\n  lb: {loss: mse, inputs: [fb, y]}\n  wrong: {update: a, loss: lb}"
    ) == ["E-NO-GRADIENT"]


def test_a_model_that_a_loss_does_not_reach_is_an_error_even_where_the_loss_steps_another():
    found = problems(STEP_B + "  wrong: {update: a, loss: lb}\n")
    assert told(found) == [("E-NO-GRADIENT", "wrong")]


def test_a_term_may_reach_the_model_of_an_update_alone_that_other_modes_lack():
    ops = """
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: y}
  la: {loss: mse, inputs: [fa, y]}
  lb: {loss: mse, inputs: [fb, y]}
  total: {call: add, inputs: [la, lb]}
  step: {update: [a, b], loss: total}
  slope: {gradient: total, wrt: x}
outputs: [slope]"""
    assert codes(ops) == []


def test_a_term_that_reaches_no_target_is_an_error():
    ops = (
        STEP_A.replace("loss: la}", "loss: total}")
        + "  fb: {forward: b, inputs: x}\n  lb: {loss: mse, inputs: [fb, y]}\n"
    )
    found = problems(ops + "  half: {call: mul, inputs: [lb, 0.5]}\n  total: {call: sub, inputs: [la, half]}\n")
    assert told(found) == [("E-NO-GRADIENT", "lb")]
    assert codes(ops + "  total: {call: mul, inputs: [la, lb]}\n") == []


def test_a_term_may_reach_the_target_of_another_update_of_the_same_loss():
    ops = """
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  lb: {loss: mse, inputs: [fb, y]}
  total: {call: add, inputs: [la, lb, 1.0]}
  step_a: {update: a, loss: total}
  step_b: {update: b, loss: total}
"""
    assert codes(ops) == []


def test_one_of_several_models_that_no_term_reaches_is_an_error():
    found = problems(STEP_A.replace("update: a,", "update: [a, b],"))
    assert [one.code for one in found] == ["E-NO-GRADIENT"]
    assert "model 'b'" in found[0].message


def test_stop_on_the_only_way_is_an_error():
    assert codes(STEP_A.replace("inputs: x}", "inputs: x, stop: true}")) == ["E-NO-GRADIENT"]


def test_a_gradient_of_a_value_that_the_loss_does_not_depend_on_is_an_error():
    ops = STEP_A + "  slope: {gradient: la, wrt: WRT}\noutputs: [slope]"
    assert codes(ops.replace("WRT", "x")) == []
    assert codes(ops.replace("WRT", "y")) == []
    assert codes(ops.replace("WRT", "z").replace("outputs", "  z: {random: normal, like: x}\noutputs")) == [
        "E-NO-GRADIENT"
    ]


# ---------------------------------------------------------------- W-STALE, W-ADVERSARY, W-MIXED, W-NO-EFFECT


def test_a_gradient_of_older_weights_is_told():
    stale = STEP_A + "  lc: {loss: l1, inputs: [fa, y]}\n  twice: {update: a, loss: lc, after: step_a}\n"
    found = problems(stale)
    assert told(found) == [("W-STALE", "twice")]
    assert "a.params@0 to a.params@1" in found[0].message
    fresh = stale.replace(
        "  lc: {loss: l1, inputs: [fa", "  fc: {forward: a, inputs: x, after: step_a}\n  lc: {loss: l1, inputs: [fc"
    )
    assert codes(fresh) == []


JUDGED = """
  fake: {forward: a, inputs: x}
  judged: {forward: b, inputs: fake, after: AFTER}
  la: {loss: mse, inputs: [judged, 1.0]}
  step_a: {update: a, loss: la}
"""


@pytest.mark.parametrize(("after", "warned"), [("", True), (", after: []", False), (", after: step_b", False)])
def test_a_judge_that_another_update_moves_is_told_unless_the_forward_says_what_is_meant(after, warned):
    ops = JUDGED.replace(", after: AFTER", after) + STEP_B
    assert told(problems(ops)) == ([("W-ADVERSARY", "step_a")] if warned else [])


def test_an_unrelated_after_does_not_silence_the_adversary():
    ops = JUDGED.replace("AFTER", "step_c") + STEP_B
    ops += "  fc: {forward: c, inputs: x}\n  lc: {loss: mse, inputs: [fc, y]}\n  step_c: {update: c, loss: lc}\n"
    assert sorted(codes(ops)) == ["W-ADVERSARY", "W-NO-EFFECT"]


BLOCKS = """graphspec: 1
name: judged
inputs: {x: {shape: [batch, 2]}}
models: {g: {layers: [{linear: 2}], optimizer: sgd}, d: {layers: [{linear: 1}], optimizer: sgd}}
blocks:
  judge: {inputs: [seen], outputs: [score], ops: {score: {forward: d, inputs: seen}}}
ops:
  fake: {forward: g, inputs: x}
  real: {use: judge, inputs: x}
  step_d: {update: d, loss: "mse(real.score, 1.0)"}
  judged: {use: judge, inputs: fake}
  step_g: {update: g, loss: "mse(judged.score, 1.0)"}
"""


def test_what_helps_against_an_adversary_in_a_block_is_written_on_its_use():
    (warning,) = compile_step(load(BLOCKS)).warnings
    assert warning.help.startswith("write `after: step_d` on 'judged' to judge")
    helped = BLOCKS.replace("judged: {use: judge, inputs: fake}", "judged: {use: judge, inputs: fake, after: step_d}")
    assert compile_step(load(helped)).warnings == ()


def test_a_judge_moved_by_the_same_loss_is_no_adversary():
    ops = JUDGED.replace(", after: AFTER", "") + "  step_b: {update: b, loss: la}\n"
    assert codes(ops) == []


def test_a_judge_that_nobody_moves_is_no_adversary():
    assert codes(JUDGED.replace(", after: AFTER", "")) == []


def test_a_judge_moved_in_other_steps_only_is_no_adversary():
    ops = JUDGED.replace(", after: AFTER", "").replace("loss: la}", "loss: la, every: 2}")
    ops += STEP_B.replace("loss: lb}", "loss: lb, every: 2, start: 1 steps}")
    assert codes(ops) == []


def test_a_gradient_through_several_versions_of_its_target_is_told():
    ops = """
  fa: {forward: a, inputs: x, snapshot: true}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la}
  again: {forward: a, inputs: y, after: step_a}
  both: {call: add, inputs: [fa, again]}
  lb: {loss: mse, inputs: [both, y]}
  twice: {update: a, loss: lb, after: step_a}
"""
    found = problems(ops)
    assert ("W-MIXED", "twice") in told(found)
    assert codes(ops.replace("inputs: [fa, again]", "inputs: [x, again]")) == []


def test_an_after_that_changes_no_version_is_told():
    idle = STEP_A + "  late: {forward: b, inputs: x, after: step_a}\noutputs: [late]"
    found = problems(idle)
    assert [one.code for one in found] == ["W-NO-EFFECT"]
    assert "`after: step_a` on 'late'" in found[0].message
    assert codes(idle.replace("forward: b", "forward: a")) == []
    assert codes(idle.replace("outputs: [late]", "  use: {forward: a, inputs: late}\noutputs: [use]")) == []


@pytest.mark.parametrize(
    ("scaled", "first", "second", "warned"),
    [
        (True, "", "", False),
        (True, ", on_overflow: group", ", on_overflow: group", False),
        (False, ", on_overflow: group", ", on_overflow: group", False),
        (True, ", on_overflow: own", ", on_overflow: own", True),
        (True, ", on_overflow: own", "", True),
        (True, ", on_overflow: apply", "", True),
        (False, ", on_overflow: error", ", on_overflow: error", True),
        (False, "", "", True),
    ],
)
def test_an_after_that_decides_which_updates_are_skipped_together_has_an_effect(scaled, first, second, warned):
    ops = STEP_A.replace("loss: la}", f"loss: la{first}}}")
    ops += "  fb: {forward: b, inputs: x, after: step_a}\n  lb: {loss: mse, inputs: [fb, y]}\n"
    ops += f"  step_b: {{update: b, loss: lb{second}}}\n"
    prelude = PRELUDE + "precision: {loss_scale: 8}\n" * scaled
    assert told(problems(ops, prelude=prelude)) == ([("W-NO-EFFECT", "fb")] if warned else [])


def test_an_after_works_through_the_update_it_names():
    ops = STEP_A + STEP_B.replace("loss: lb}", "loss: lb, after: step_a}")
    assert codes(ops + "  late: {forward: a, inputs: y, after: step_b}\noutputs: [late]") == []


# ---------------------------------------------------------------- W-TARGET, W-DEAD, E-DEFER, E-BACKEND, E-SHAPE


def test_a_bootstrap_target_of_the_same_model_needs_stop():
    ops = """
  now: {forward: a, inputs: x}
  later: {forward: a, inputs: yOPTION}
  target: {call: add, inputs: [later, 1.0]}
  l: {loss: LOSS, inputs: [now, target]}
  step: {update: a, loss: l}
"""
    plain = ops.replace("LOSS", "mse")
    assert told(problems(plain.replace("OPTION", ""))) == [("W-TARGET", "l")]
    assert codes(plain.replace("OPTION", ", stop: true")) == []
    assert codes(plain.replace("OPTION", "").replace("forward: a, inputs: y", "forward: slow_a, inputs: y")) == []


def test_what_nobody_uses_is_told():
    assert told(problems(STEP_A + "  idle: {forward: b, inputs: x}\n")) == [("W-DEAD", "idle")]
    assert codes(STEP_A + "  idle: {forward: b, inputs: x}\noutputs: [idle]") == []
    assert codes(STEP_A + "  idle: {forward: b, inputs: x}\n  seen: {metric: mean, inputs: idle}\n") == []


def test_a_train_step_that_trains_and_returns_nothing_is_told():
    ops = STEP_A.replace("la: {loss: mse, inputs: [fa, y]}", "error: {expr: mean((fa - y) ** 2)}").replace(
        "la}", "error}"
    )
    (found,) = problems(ops)
    assert (found.code, found.severity) == ("W-NO-OUTPUT", "warning")
    assert "`outputs: [error]`" in found.help
    assert codes(ops + "outputs: [error]") == []
    assert codes(ops + "outputs: []") == []
    assert codes(ops + "  seen: {metric: mean, inputs: error}\n") == []
    assert codes(ops.replace("{expr: mean((fa - y) ** 2)}", "{expr: '2 * mse(fa, y)'}")) == ["W-NO-OUTPUT"]
    inside = ops.replace("  error: {expr: mean((fa - y) ** 2)}\n", "").replace(
        "loss: error", "loss: mean((fa - y) ** 2)"
    )
    assert codes(inside) == []
    by_set = ops.replace("update: a, loss: error", "update: a, gradients: g") + "  g: {gradient: error, wrt: a}\n"
    assert "`outputs: [error]`" in problems(by_set)[0].help


def test_an_average_of_a_model_that_nothing_writes_is_told_with_its_reason():
    found = problems(STEP_A + "  follow: {ema: slow_a, into: slower_a, decay: 0.9}\n")
    assert [one.code for one in found] == ["W-DEAD"]
    assert "'slow_a'" in found[0].message


def test_never_defer_is_refused_where_a_hazard_forbids_it():
    ops = """
  fa: {forward: a, inputs: x}
  fb: {forward: b, inputs: fa}
  l: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: l, defer: never}
  step_a: {update: a, loss: l}
"""
    found = problems(ops, order="listed")
    assert [one.code for one in found] == ["E-DEFER"]
    assert "gradient step_a still reads b.params@0 through fb" in found[0].notes[0]
    assert codes(ops) == []
    assert codes(ops, order="listed", backend="tensorflow") == []


def test_a_class_or_function_of_another_backend_is_refused():
    prelude = "graphspec: 1\nname: s\ninputs: {x: {}, y: {}}\nmodels:\n  a: {class: {torch: 'zoo:A'}, optimizer: sgd}\n"
    assert "E-BACKEND" in codes(STEP_A, prelude=prelude, backend="tensorflow")
    assert "E-BACKEND" not in codes(STEP_A, prelude=prelude)
    ops = STEP_A.replace("loss: mse", "loss: {tensorflow: 'zoo:mse'}")
    assert codes(ops) == ["E-BACKEND"]


def test_shapes_that_cannot_fit_are_told_with_what_was_expected():
    found = problems(
        STEP_A.replace("inputs: [fa, y]", "inputs: [fa, wide]") + "  wide: {random: normal, shape: [batch, 3]}\n"
    )
    assert [one.code for one in found] == ["E-SHAPE"]
    assert "'la'" in found[0].message


# ---------------------------------------------------------------- all together


def test_all_problems_come_together_sorted_by_place():
    found = problems(
        STEP_N
        + """
  follow: {ema: n, into: slow_n, decay: 0.9}
  fb: {forward: b, inputs: x}
  lb: {loss: mse, inputs: [fb, y]}
  wrong: {update: [a, b], loss: lb}
  idle: {forward: c, inputs: x}
"""
    )
    assert [one.code for one in found] == ["E-BUFFERS", "E-NO-GRADIENT", "W-DEAD"]
    places = [(one.span.line, one.span.column) for one in found]
    assert places == sorted(places)


def test_the_same_problem_in_several_functions_and_modes_is_told_once():
    ops = JUDGED.replace(", after: AFTER", "") + STEP_B
    ops += (
        "  fc: {forward: c, inputs: x}\n  lc: {loss: mse, inputs: [fc, y]}\n  step_c: {update: c, loss: lc, every: 3}\n"
    )
    assert codes(ops + "outputs: [la]") == ["W-ADVERSARY"]


def test_every_problem_has_a_place_and_a_remedy():
    for ops in (
        STEP_N + "  follow: {ema: n, into: slow_n, decay: 0.9}\n",
        STEP_A.replace("update: a,", "update: [a, b],"),
    ):
        assert all(one.span is not None and one.help for one in problems(ops))


def test_an_error_reads_as_an_excerpt_of_the_file_with_a_caret():
    with pytest.raises(SpecError, match=r"error\[E-BUFFERS\]: 'follow' averages 'n', which has buffers") as raised:
        compiled(STEP_N + "  follow: {ema: n, into: slow_n, decay: 0.9}\n")
    assert "follow: {ema: n, into: slow_n" in str(raised.value)
    assert "see docs/errors/E-BUFFERS.md" in str(raised.value)


def test_hundreds_of_added_terms_are_no_trouble():
    terms = "".join(f"  t{index}: {{loss: mse, inputs: [fa, {float(index)}]}}\n" for index in range(600))
    sums = "".join(f"  s{index}: {{call: add, inputs: [s{index - 1}, t{index}]}}\n" for index in range(1, 600))
    first = "  fa: {forward: a, inputs: x}\n  s0: {call: neg, inputs: t0}\n"
    assert codes(f"{first}{terms}{sums}  step: {{update: a, loss: s599}}") == []


def test_a_spec_loads_before_it_is_compiled():
    assert load(document(STEP_A)).name == "step"
