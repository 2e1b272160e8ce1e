"""Ops that repeat or choose mean their ops written out, and messages name the op in them, and the iteration."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import Graph, SpecError, dump, load
from graphspec.library import mean, sgd

HEAD = """graphspec: 1
name: parts
vars: {n: 2}
inputs: {x: {shape: [batch, 4]}, flag: {shape: [3]}}
state: {memory: {shape: [4]}}
models:
  net: {layers: [{linear: 4}], optimizer: sgd}
  slow: {like: net}
ops:
"""
REPEAT = """  passes:
    repeat: "${n}"
    outputs: [fit]
    ops:
      out: {forward: net, inputs: x}
      fit: {loss: mse, inputs: [out, x]}
      step: {update: net, loss: fit}
  last: {forward: net, inputs: x, after: passes}
"""


def read(ops: str, *settings: str):
    return load(f"{HEAD}{ops}", settings)


def find_problems(ops: str):
    """Return the problems of a spec: code, the text that the caret marks, and the notes on where it stands."""
    text = f"{HEAD}{ops}"
    with pytest.raises(SpecError) as raised:
        load(text)
    lines = text.splitlines()
    spans = [each.span for each in raised.value.diagnostics]
    marked = [lines[span.line - 1][span.column - 1 : span.end_column - 1] for span in spans]
    return [(each.code, mark, each.span.via) for each, mark in zip(raised.value.diagnostics, marked, strict=True)]


def test_a_repeat_means_its_ops_written_out():
    written = read("""
  passes.1.out: {forward: net, inputs: x, within: [{repeat: passes, number: 1, count: 2}]}
  passes.1.fit: {loss: mse, inputs: [passes.1.out, x], within: [{repeat: passes, number: 1, count: 2}]}
  passes.1.step: {update: net, loss: passes.1.fit, within: [{repeat: passes, number: 1, count: 2}]}
  passes.2.out: {forward: net, inputs: x, after: passes.1.step, within: [{repeat: passes, number: 2, count: 2}]}
  passes.2.fit:
    {loss: mse, inputs: [passes.2.out, x], after: passes.1.step, within: [{repeat: passes, number: 2, count: 2}]}
  passes.2.step:
    {update: net, loss: passes.2.fit, after: passes.1.step, within: [{repeat: passes, number: 2, count: 2}]}
  last: {forward: net, inputs: x, after: [passes.2.out, passes.2.fit, passes.2.step]}
  passes.fit: {call: stack, inputs: [passes.1.fit, passes.2.fit]}
""")
    assert read(REPEAT) == written
    assert dump(load(dump(written))) == dump(written)
    assert len(read(REPEAT, "vars.n=5").ops) == 17


def test_what_is_inside_reads_what_is_outside_and_hides_it():
    spec = read("""
  out: {forward: net, inputs: x}
  outer:
    repeat: 2
    ops:
      twice: {expr: "out * 2"}
      inner: {repeat: 2, ops: {out: {expr: "twice + 1"}, more: {expr: "out * 3"}}}
""")
    assert [each.name for each in spec.ops["outer.2.twice"].operands()] == ["out"]
    assert [each.name for each in spec.ops["outer.2.inner.1.more"].operands()] == ["outer.2.inner.1.out"]
    assert [str(each) for each in spec.ops["outer.2.inner.1.more"].within] == [
        "iteration 2 of 2 of outer",
        "iteration 1 of 2 of outer.2.inner",
    ]


def test_blocks_and_repeats_hold_each_other():
    spec = load(f"""{HEAD.replace("ops:", "")}
blocks:
  learn:
    inputs: [seen]
    outputs: [passes.fit]
    ops:
      passes:
        repeat: 2
        outputs: [fit]
        ops: {{out: {{forward: net, inputs: seen}}, fit: {{loss: mse, inputs: [out, seen]}}}}
ops:
  one: {{use: learn, inputs: x}}
  many: {{repeat: 2, batch: split, ops: {{again: {{use: learn, inputs: x}}}}}}
  both: {{call: mean, inputs: one.passes.fit}}
""")
    assert [each.name for each in spec.ops["one.passes.2.out"].operands()] == ["net", "x"]
    assert [each.name for each in spec.ops["many.2.again.passes.1.out"].operands()] == ["net", "many.2.x"]
    assert spec.ops["many.rows.x"].args == {"count": 2}


def test_a_split_cuts_what_has_rows_once():
    spec = read("""
  outside: {forward: net, inputs: x}
  passes:
    repeat: 2
    batch: split
    ops:
      z: {random: normal, shape: [batch, 4]}
      y: {random: normal, like: x}
      sum: {expr: "x + outside + z + y + flag[0] + memory"}
""")
    assert [name for name, op in spec.ops.items() if not getattr(op, "expr", None)] == [
        "outside", "passes.1.y", "passes.2.y", "passes.whole.z", "passes.rows.z", "passes.rows.x",
        "passes.rows.outside",
    ]  # fmt: skip
    assert spec.ops["passes.2.y"].like == "passes.2.x"


def test_next_reads_a_batch_for_every_iteration():
    spec = read(
        """
  passes:
    repeat: 3
    batch: next
    ops: {out: {forward: net, inputs: x}, fit: {loss: mse, inputs: [out, x]}}
  last: {forward: net, inputs: x}
"""
    )
    assert (spec.batches, [*spec.inputs]) == (3, ["x", "flag", "batch_1.x", "batch_2.x"])
    read_by = {
        name: [each.name for each in spec.ops[name].operands()][-1] for name in ("passes.1.out", "passes.3.out", "last")
    }
    assert read_by == {"passes.1.out": "batch_1.x", "passes.3.out": "x", "last": "x"}
    assert spec.ops["passes.2.fit"].mode == ("train",)


OPS = 'ops: {b: {expr: "x * 2"}}'


@pytest.mark.parametrize(
    ("ops", "code", "mark"),
    [
        ("  a: {repeat: 65, OPS}", "GS044", "65"),
        ("  a: {repeat: {schedule: linear, from: 1, over: 3}, OPS}", "GS069", "{schedule"),
        ("  a: {repeat: {schedule: piecewise, at: {0: 1, 5: 3, 9: 2}}, OPS}", "GS069", "{schedule"),
        ("  a: {repeat: {schedule: piecewise, at: {0: 0.5}}, OPS}", "GS069", "{schedule"),
        ("  a: {repeat: 2, outputs: [c], OPS}", "GS069", "c"),
        ("  a: {repeat: 2, outputs: [c], ops: {c: {copy: net, into: slow}}}", "GS069", "c"),
        (
            "  a: {repeat: 2, outputs: [c], ops: {c: {adapt: net, loss: d, lr: 1.0}}}\n  d: {call: sum, inputs: x}",
            "GS069",
            "c",
        ),
        ("  a: {repeat: 2, OPS}\n  d: {call: neg, inputs: a.b}", "GS065", "a.b"),
        ("  a: {repeat: 2, OPS}\n  d: {call: neg, inputs: a}", "GS065", "a"),
        ("  a: {choose: [{p: 0.5, OPS}]}", "GS069", "[{p"),
        ("  a: {sometimes: 1.5, OPS}", "GS044", "1.5"),
        ("  a: {sometimes: 0.5, OPS, else: {c: x}}", "GS069", "x"),
        ("  a: {repeat: 2, ops: {b: {ema: net, decay: 0.9}}}", "GS069", "net"),
        ("  a: {repeat: 2, ops: {b: {ema: net, into: slow, half_life: 5 steps}}}", "GS069", "5 steps"),
        (
            "  a: {repeat: 2, ops: {b: {ema: net, into: slow, decay: {kind: half_life, half_life: 5 steps}}}}",
            "GS069",
            "5 steps",
        ),
        ("  a: {repeat: 2, ops: {b: {ema: net, into: slow, decay: 0.9, start: 5 updates}}}", "GS069", "5 updates"),
        ("  a: {repeat: 2, ops: {b: {ema: net, into: slow, decay: 0.9, every: 5 steps}}}", "GS069", "5 steps"),
        (
            "  a: {repeat: 2, ops: {b: {ema: net, into: slow, decay: 0.9, use: {write_back: {every: 7}}}}}",
            "GS069",
            "7",
        ),
        (
            "  a: {repeat: 2, ops: {b: {forward: net, inputs: x}, c: {update: net, loss: b, optimizer: adam}}}",
            "GS069",
            "adam",
        ),
        ("  a: {repeat: 2, ops: {}}", "GS044", "{}"),
        ("  a: {repeat: 2, ops: {b: {ema: net, into: slow, tau: 0.1, use: {eval: swap}}}}", "GS069", "swap"),
        ("  a: {repeat: 2, batch: split, ops: {b: {random: permutation, shape: [batch]}}}", "GS069", "permutation"),
        (
            "  a: {repeat: 2, batch: split, ops: {b: {repeat: 2, batch: split, OPS}}}",
            "GS069",
            "split",
        ),
        ("  a: {repeat: 2, batch: split, ops: {b: {repeat: 2, batch: next, OPS}}}", "GS069", "next"),
        (
            "  a: {repeat: 2, batch: next, OPS}\n  b: {repeat: 3, batch: next, OPS}",
            "GS069",
            "next",
        ),
        ("  a: {forward: net, inputs: x}\nphases: [[a], [b]]", "GS069", "b"),
        ("  a: {forward: net, inputs: x}\nphases: [[a], [a]]", "GS069", "a"),
        (
            "  a: {repeat: 2, batch: next, OPS}\ndata: {train: {source: npz, path: x.npz, batch: 4, drop_last: false}}",
            "GS069",
            "false",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_reported_where_it_stands(ops: str, code: str, mark: str):
    found = find_problems(ops.replace("OPS", OPS))
    assert [each for each, _, _ in found] == [code]
    assert found[0][1].startswith(mark)


def test_a_message_is_about_the_op_and_names_the_iteration_and_each_problem_once():
    (found,) = find_problems("  a: {repeat: 3, ops: {b: {loss: mse, inputs: [y, x]}}}")
    assert found == ("GS104", "y", ("iteration 1 of 'a' at <text>:10:3",))
    (found,) = find_problems("  a: {choose: [{p: 1, ops: {b: {loss: mse, inputs: [y, x]}}}]}")
    assert found == ("GS104", "y", ("alternative 1 of 'a' at <text>:10:3",))
    (found,) = find_problems("  a: {repeat: 12, ops: {b: {ema: net, into: slow, decay: {kind: tf, mx: 0.9}}}}")
    assert found == ("GS040", "mx", ("iteration 1 of 'a' at <text>:10:3",))
    (found,) = find_problems("  a: {repeat: 12, ops: {b: {ema: net, into: slow, decay: 2}}}")
    assert found == ("GS044", "2", ("iteration 1 of 'a' at <text>:10:3",))


def test_a_message_has_the_names_that_were_written():
    average = "ops: {b: {ema: net, decay: 0.9}}"
    for ops, part in (
        (f"  a: {{repeat: 3, {average}}}", "a"),
        (f"  o: {{repeat: 2, ops: {{a: {{sometimes: 0.5, {average}}}}}}}", "o"),
    ):
        with pytest.raises(SpecError, match=f"every iteration of '{part}' would keep an average 'b' of its own"):
            load(f"{HEAD}{ops}")


@pytest.mark.parametrize(
    ("ops", "said"),
    [
        (  # no `outputs` are written in a `sometimes`
            "  a: {sometimes: 0.5, OPS}\n  d: {call: neg, inputs: a.b}",
            "add `else: {b: ...}`, with what it is in the steps without the part",
        ),
        ("  a: {repeat: 2, OPS}\n  d: {call: neg, inputs: a.b}", "add `outputs`"),
        ("  a: {choose: [{p: 0.5, OPS}, {p: 0.5, ops: {}}], outputs: [b]}", "alternative 2 of 'a' has no value 'b'"),
        (
            "  a: {repeat: 2, batch: next, OPS}\n  b: {repeat: 3, batch: next, OPS}",
            "a step takes 2 batches for 'a' and 3 for 'b'",
        ),
    ],
)
def test_a_message_says_what_is_missing_where(ops: str, said: str):
    with pytest.raises(SpecError) as caught:
        load(f"{HEAD}{ops.replace('OPS', OPS)}")
    assert said in str(caught.value)


PLAYERS = """
graphspec: 1
name: players
inputs: {x: {shape: [batch, 4]}}
models: {g: {layers: [{linear: 4}], optimizer: sgd}, d: {layers: [{linear: 1}], optimizer: sgd}}
phases: [[fake, d_loss, step_d], [judged, g_loss, step_g]]
ops:
  fake: {forward: g, inputs: x}
  on_fake: {forward: d, inputs: fake}
  on_real: {forward: d, inputs: x}
  d_loss: {expr: "mean(on_fake) - mean(on_real)"}
  step_d: {update: d, loss: d_loss}
  judged: {forward: d, inputs: fake}
  g_loss: {expr: "-mean(judged)"}
  step_g: {update: g, loss: "0.1 * g_loss"}
"""


def test_phases_hold_expressions_and_what_an_op_of_them_does_not_need_is_no_warning():
    after = PLAYERS.replace("phases: [[fake, d_loss, step_d], [judged, g_loss, step_g]]\n", "")
    for op in ("judged: {", "g_loss: {", "step_g: {"):
        after = after.replace(op, f"{op}after: step_d, ")
    assert load(PLAYERS).ops == load(after).ops
    assert compile_step(load(PLAYERS)).warnings == ()
    assert {each.code for each in compile_step(load(after)).warnings} == {"W-NO-EFFECT"}


def test_what_is_wrong_with_an_order_is_reported_at_the_phase():
    text = PLAYERS.replace("[fake, d_loss, step_d]", "[step_d]").replace("[judged,", "[on_fake, judged,")
    with pytest.raises(SpecError) as caught:
        compile_step(load(text))
    (found,) = caught.value.diagnostics
    assert (found.code, found.span.place, found.span.via) == ("E-CYCLE", "<text>:6:21", ("phase 2 at <text>:6:21",))


def test_an_op_of_a_phase_may_itself_name_what_it_comes_after():
    named = PLAYERS.replace("judged: {", "judged: {after: step_d, ")
    assert named != PLAYERS
    assert set(load(named).ops["judged"].after or ()) == set(load(PLAYERS).ops["judged"].after or ())


def test_python_declares_the_same():
    g = Graph("parts")
    x = g.input("x", ["batch", 4])
    net = g.model("net", layers=[{"linear": 4}], optimizer=sgd(0.1))
    with g.repeat("passes", 2, batch="split") as passes:
        out = net(x)
        fit = mean((out - x) ** 2)
        g.update(net, loss=fit, name="step")
    losses = passes.output(fit)
    views = g.choose("views", mode="train")
    with views.when(0.25):
        g.expr(-x, name="seen")
    with views.when(0.75):
        g.expr(x * 2, name="seen")
    with g.sometimes("flip", 0.5, otherwise={"turned": x}) as flip:
        turned = seen_twice = x * 3
        g.expr(turned + seen_twice, name="unused")
    last = net(x, after=passes)
    found = g.build(outputs=[losses, views.output("seen"), flip.output("turned"), last])
    written = load("""graphspec: 1
name: parts
inputs: {x: {shape: [batch, 4]}}
models: {net: {layers: [{linear: 4}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  passes:
    repeat: 2
    batch: split
    outputs: [fit]
    ops:
      out: {forward: net, inputs: x}
      fit: {expr: "mean((out - x) ** 2)"}
      step: {update: net, loss: fit}
  views:
    choose: [{p: 0.25, ops: {seen: {expr: "-x"}}}, {p: 0.75, ops: {seen: {expr: "x * 2"}}}]
    mode: train
    outputs: [seen]
  flip: {sometimes: 0.5, ops: {turned: {expr: "x * 3"}, unused: {expr: "turned + turned"}}, else: {turned: x}}
  last: {forward: net, inputs: x, after: passes}
outputs: [passes.fit, views.seen, flip.turned, last]
""")
    assert dump(found) == dump(written)


def test_python_says_how_a_value_is_taken_out():
    g = Graph("parts")
    x = g.input("x", ["batch", 4])
    with g.repeat("passes", 2):
        inner = x * 2
    with pytest.raises(SpecError, match="is inside of 'passes'"):
        g.build(outputs=[inner + 1])


@pytest.mark.parametrize(
    "declare",
    [lambda g: g.model("m", like="net"), lambda g: g.input("y", ["batch"]), lambda g: g.state("s", [1])],
)
def test_python_declares_no_models_inputs_or_states_inside_of_an_op(declare):
    g = Graph("parts")
    with g.repeat("passes", 2), pytest.raises(SpecError, match=r"'passes' holds ops, and this is an? [mis]"):
        declare(g)
