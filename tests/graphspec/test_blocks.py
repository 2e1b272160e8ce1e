"""Blocks: a use means its ops written out, and messages name both places."""

from __future__ import annotations

import pytest

from graphspec import SpecError, dump, load
from graphspec.declare.ops import KINDS
from graphspec.limits import Limits
from tests.graphspec.kinds import LINES

HEAD = """graphspec: 1
name: blocks
vars: {w: 0.5}
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 4}], optimizer: sgd}
  other: {layers: [{linear: 4}], optimizer: adam}
"""
BLOCKS = """blocks:
  fitting:
    inputs: [seen, wanted]
    outputs: [cost]
    args: {weight: 1.0, reduction: mean}
    ops:
      out: {forward: net, inputs: seen}
      cost: {loss: mse, inputs: [out, wanted], weight: "${weight}", reduction: "${reduction}"}
  learn:
    inputs: [a, b]
    outputs: [fit.cost]
    ops:
      fit: {use: fitting, inputs: [a, b], args: {weight: "${w}"}}
      step: {update: net, loss: fit.cost}
"""


def read(ops, blocks=BLOCKS):
    return load(f"{HEAD}{blocks}ops:\n{ops}")


def find_problem(ops, blocks=BLOCKS):
    """Return the only problem of a spec: its code, the text that its caret marks, and its notes."""
    text = f"{HEAD}{blocks}ops:\n{ops}"
    with pytest.raises(SpecError) as raised:
        load(text)
    (found,) = raised.value.diagnostics
    line = text.splitlines()[found.span.line - 1]
    return found.code, found.message, line[found.span.column - 1 : found.span.end_column - 1], found.span.via


def test_a_use_means_its_ops_written_out():
    used = read("""
  one: {use: learn, inputs: {a: x, b: y}}
  two: {use: learn, inputs: [x, 0.0], models: {net: other}, every: 2}
  three: {use: fitting, inputs: [x, y], args: {reduction: sum}, after: one, mode: train}
  both: {call: add, inputs: [three.cost, one.fit.cost]}
""")
    written = read(
        """
  one.fit.out: {forward: net, inputs: x}
  one.fit.cost: {loss: mse, inputs: [one.fit.out, y], weight: 0.5, reduction: mean}
  one.step: {update: net, loss: one.fit.cost}
  two.fit.out: {forward: other, inputs: x}
  two.fit.cost: {loss: mse, inputs: [two.fit.out, 0.0], weight: 0.5, reduction: mean}
  two.step: {update: other, loss: two.fit.cost, every: 2}
  three.out: {forward: net, inputs: x, after: [one.fit.out, one.fit.cost, one.step], mode: train}
  three.cost: {loss: mse, inputs: [three.out, y], weight: 1.0, reduction: sum,
               after: [one.fit.out, one.fit.cost, one.step], mode: train}
  both: {call: add, inputs: [three.cost, one.fit.cost]}
""",
        blocks="",
    )
    assert [*used.ops] == [*written.ops]
    assert used == written
    assert dump(load(dump(used))) == dump(used)


def test_an_input_of_a_block_may_have_any_name_of_a_value():
    blocks = BLOCKS.replace("wanted", "class")
    by_name = read("\n  one: {use: fitting, inputs: {class: y, seen: x}}\n", blocks)
    assert by_name == read("\n  one: {use: fitting, inputs: [x, y]}\n", blocks)


ALL = """blocks:
  all:
    inputs: [seen, wanted]
    outputs: [h, raw, mean]
    ops:
      parts: {forward: net, inputs: seen, outputs: [mean, {h: {tap: 0}}]}
      halves: {call: split, inputs: mean, outputs: [raw, rest], args: {sections: 2, axis: 1}}
      z: {random: normal, shape: [batch, 4]}
      rate: {schedule: linear, from: 1.0, over: 10}
      fit: {loss: mse, inputs: [mean, wanted]}
      slope: {gradient: fit, wrt: net}
      small: {transform: clip_norm, inputs: slope, args: {norm: 1.0}}
      step: {update: net, gradients: small}
      again: {update: net, loss: fit, every: step, after: step}
      slow: {ema: net, decay: 0.9, after: again}
      copied: {copy: net, into: other}
      seen_slow: {forward: slow, inputs: seen}
      shown: {metric: mean, inputs: fit}
      kept: {assign: memory, value: 0.5}
      quick: {adapt: net, gradients: small, lr: 0.1}
      tried: {forward: quick, inputs: seen}
"""


def test_every_name_in_a_block_is_bound():
    spec = load(f"{HEAD}state: {{memory: {{shape: []}}}}\n{ALL}ops:\n  u: {{use: all, inputs: [x, y]}}\n")
    free = {"net", "other", "memory", "x", "y"}
    for op in spec.ops.values():
        assert {each.name for each in op.references() if not each.name.startswith("u.")} <= free
    assert spec.ops["u.parts"].defines("") == ("u.mean", "u.h")
    assert spec.ops["u.halves"].defines("") == ("u.raw", "u.rest")
    assert spec.ops["u.again"].every == "u.step"


@pytest.mark.parametrize("kind", KINDS)
def test_an_op_of_every_kind_may_stand_in_a_block(kind):
    ops = ["out: {forward: net, inputs: x}", "err: {loss: mse, inputs: [out, 0.0]}", *LINES[kind].splitlines()]
    block = "".join(f"      {line}\n" for line in ops)
    state = "state: {held: {shape: []}}\n"
    spec = read(
        "  u: {use: one, inputs: [y]}\n",
        f"{state}blocks:\n  one:\n    inputs: [x]\n    outputs: [out]\n    ops:\n{block}",
    )
    assert spec.ops["u.a"].kind == kind
    named = {each.name for op in spec.ops.values() for each in op.references()}
    assert {name for name in named if not name.startswith("u.")} <= {"net", "other", "held", "y"}


def test_the_outputs_of_a_stopped_use_are_constants():
    spec = read("  u: {use: fitting, inputs: [x, y], stop: true}\n  v: {call: neg, inputs: u.cost}\n")
    assert [(name, op.kind) for name, op in spec.ops.items()] == [
        ("u.out", "forward"),
        ("u.cost.unstopped", "loss"),
        ("v", "call"),
        ("u.cost", "call"),
    ]
    assert spec.ops["u.cost"].call.name("torch") == "stop"
    assert [each.name for each in spec.ops["u.cost"].operands()] == ["u.cost.unstopped"]


def test_a_stopped_use_of_a_block_that_gives_what_another_makes_stops_that():
    spec = read("  u: {use: learn, inputs: [x, y], stop: true}\n  v: {call: neg, inputs: u.fit.cost}\n")
    assert spec.ops["u.step"].loss == "u.fit.cost.unstopped"  # in the block gradients pass
    assert (spec.ops["u.fit.cost.unstopped"].kind, spec.ops["u.fit.cost"].call.name("torch")) == ("loss", "stop")
    blocks = BLOCKS.replace("fit: {use: fitting,", "fit: {use: fitting, stop: true,").replace(
        "step: {update: net, loss: fit.cost}", "same: {call: neg, inputs: fit.cost}"
    )
    twice = read("  u: {use: learn, inputs: [x, y], stop: true}\n  v: {call: neg, inputs: u.fit.cost}\n", blocks)
    way = [name for name, op in twice.ops.items() if op.kind == "call" and op.call.name("torch") == "stop"]
    assert sorted(way) == ["u.fit.cost", "u.fit.cost.unstopped"]
    assert twice.ops["u.fit.cost.unstopped.unstopped"].kind == "loss"
    assert [each.name for each in twice.ops["u.same"].operands()] == ["u.fit.cost.unstopped"]


def test_a_clock_of_a_stopped_use_is_for_its_writes_alone():
    spec = read("  u: {use: learn, inputs: [x, y], stop: true, every: 2}\n  v: {call: neg, inputs: u.fit.cost}\n")
    assert {name: op.every for name, op in spec.ops.items() if op.every is not None} == {"u.step": 2}


def test_an_average_of_what_a_block_updates_follows_the_update_and_another_counts_writes():
    blocks = BLOCKS + "      slow: {ema: net, decay: 0.9}\n      slower: {ema: other, decay: 0.9}\n"
    spec = read("  u: {use: learn, inputs: [x, y], every: 2}\n  v: {update: other, loss: u.fit.cost}\n", blocks)
    clocks = {name: op.every for name, op in spec.ops.items() if op.every is not None}
    assert clocks == {"u.step": 2, "u.slower": 2}


def test_an_average_follows_an_update_of_another_part_or_of_a_block_around_it():
    blocks = (
        BLOCKS
        + """  outer:
    inputs: [seen, wanted]
    outputs: [learned.fit.cost]
    ops:
      learned: {use: learn, inputs: [seen, wanted], models: {net: other}}
      now_and_then:
        sometimes: 0.5
        ops: {slow: {ema: other, decay: 0.9}, slower: {ema: net, decay: 0.9}}
"""
    )
    spec = read("  u: {use: outer, inputs: [x, y], every: 2}\n", blocks)
    clocks = {name: op.every for name, op in spec.ops.items() if op.every is not None}
    assert clocks == {"u.learned.step": 2, "u.now_and_then.1.slower": 2}


def test_an_average_in_a_part_counts_writes_where_the_part_alone_has_the_clock():
    ops = """  out: {forward: net, inputs: x}
  step: {update: net, loss: "mse(out, y)"}
  now_and_then: {sometimes: 0.5, every: 2, ops: {slow: {ema: net, decay: 0.9}}}
"""
    spec = read(ops)
    assert {name: op.every for name, op in spec.ops.items() if op.every is not None} == {"now_and_then.1.slow": 2}


def test_constants_are_the_blocks_own_and_may_be_variables():
    blocks = """blocks:
  noisy: {inputs: v, outputs: [out], args: {w: 2.0, k: 3}, ops: {out: {call: mul, inputs: [v, "${w}"]}}}
"""
    spec = read('  a: {use: noisy, inputs: x}\n  b: {use: noisy, inputs: x, args: {w: "${w}"}}\n', blocks)
    assert [dict(op.inputs.items())[1] for op in spec.ops.values()] == [2.0, 0.5]


@pytest.mark.parametrize(
    ("ops", "code", "message", "marked"),
    [
        ("  u: {use: fiting, inputs: [x, y]}", "GS062", "there is no block 'fiting'", "fiting"),
        ("  u: {use: [1]}", "GS062", "`use` takes the name of a block", "[1]"),
        ("  u: {use: fitting, inputs: x}", "GS064", "'u' does not give the input 'wanted' of the block 'fitting'", "x"),
        ("  u: {use: fitting, inputs: [x, y, x]}", "GS064", "the block 'fitting' has no input number 3", "x"),
        (
            "  u: {use: fitting, inputs: {seen: x, wnted: y, wanted: y}}",
            "GS064",
            "the block 'fitting' has no input 'wnted'",
            "wnted",
        ),
        (
            "  u: {use: fitting, inputs: [x, y], args: {wieght: 1}}",
            "GS064",
            "the block 'fitting' has no constant 'wieght'",
            "wieght",
        ),
        ("  u: {use: fitting, inputs: [x, y], shape: 3}", "GS040", "unknown key 'shape' in `ops.u`", "shape"),
        (
            "  u: {use: fitting, inputs: [x, y]}\n  v: {call: neg, inputs: u.out}",
            "GS065",
            "'out' of 'u' is not an output of its block",
            "u.out",
        ),
        ("  u: {use: learn, inputs: [x, y]}\n  v: {call: neg, inputs: u.fit.out}", "GS065", None, "u.fit.out"),
        ("  u: {use: fitting, inputs: [x, nowhere]}", "GS104", None, "nowhere"),
        ('  u: {use: fitting, inputs: [x, "y + 1"]}', "GS104", None, '"y + 1"'),
        (
            "  u: {use: fitting, inputs: [x, y], models: {nte: net}}",
            "GS064",
            "no op of the block 'fitting' names 'nte'",
            "nte",
        ),
    ],
)
def test_a_use_that_does_not_fit_is_told_where_it_is_written(ops, code, message, marked):
    found = find_problem(ops)
    assert (found[0], found[2]) == (code, marked)
    assert message is None or found[1] == message


@pytest.mark.parametrize(
    ("block", "code", "message", "marked"),
    [
        ("{inputs: [v], outputs: [o], ops: {o: {call: neg, inputs: w}}}", "GS065", "the block 'b' has no 'w'", "w"),
        (
            "{inputs: [v], outputs: [p], ops: {o: {call: neg, inputs: v}}}",
            "GS064",
            "the block 'b' has no value 'p'",
            "p",
        ),
        ("{inputs: [o], outputs: [o], ops: {o: {call: neg, inputs: o}}}", "GS064", None, "o"),
        ("{inputs: [v], outputs: [o], ops: {o: {call: ngt, inputs: v}}}", "GS110", None, "ngt"),
        ("{inputs: [v], outputs: [o], ops: {o: {call: neg, input: v}}}", "GS040", None, "input"),
        ("{inputs: [v], outputs: [o], ops: {o: {forward: nett, inputs: v}}}", "GS103", None, "nett"),
        ("{inputs: [v], outputs: [o], ops: {o: {use: b, inputs: v}}}", "GS063", "blocks use each other: b -> b", "b"),
        ("{inputs: [v], ops: {o: {call: neg, inputs: v}}}", "GS042", None, None),
    ],
)
def test_a_mistake_inside_a_block_is_told_there(block, code, message, marked):
    found = find_problem("  u: {use: b, inputs: x}\n", f"blocks:\n  b: {block}\n")
    assert found[0] == code
    assert message is None or found[1] == message
    assert marked is None or found[2] == marked


def test_a_message_names_the_op_in_the_block_and_every_use_around_it():
    blocks = BLOCKS.replace("inputs: [out, wanted]", "inputs: [out, wanted], wieght: 2")
    code, _, marked, via = find_problem("  one: {use: learn, inputs: [x, y]}\n", blocks)
    line = len(f"{HEAD}{blocks}ops:\n".splitlines())
    inner = next(number for number, each in enumerate(f"{HEAD}{blocks}".splitlines(), 1) if "use: fitting" in each)
    assert (code, marked) == ("GS040", "wieght")
    assert via == (
        f"'one.fit' uses the block 'fitting' at <text>:{inner}:7",
        f"'one' uses the block 'learn' at <text>:{line + 1}:3",
    )


def test_a_field_that_a_use_and_an_op_both_have_is_refused():
    blocks = BLOCKS.replace("step: {update: net,", "step: {update: net, every: 3,")
    found = find_problem("  one: {use: learn, inputs: [x, y], every: 2}\n", blocks)
    assert found[:3] == ("GS064", "`every` of 'one' holds for all ops of its block, but 'step' has its own", "every")


def test_blocks_inside_blocks_stay_within_the_limits():
    inner = "{inputs: [v], outputs: [p.o], ops: {p: {use: NAME, inputs: v}, q: {use: NAME, inputs: v}}}"
    layers = "".join(f"  b{n}: {inner.replace('NAME', f'b{n - 1}')}\n" for n in range(1, 30))
    first = "  b0: {inputs: [v], outputs: [o], ops: {o: {call: neg, inputs: v}}}\n"
    text = f"{HEAD}blocks:\n{first}{layers}ops:\n  u: {{use: b29, inputs: x}}\n"
    with pytest.raises(SpecError, match="with its blocks the document has more than 20,000 values"):
        load(text, limits=Limits(nodes=20_000))


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_step_of_blocks_runs_as_the_step_written_out(backend):
    np = pytest.importorskip("numpy")
    pytest.importorskip(backend)
    from compiler import compile_step
    from runtime import build

    used = read(
        "  one: {use: learn, inputs: [x, y]}\n  two: {use: learn, inputs: [x, y], models: {net: other}, every: 2}\n"
    )
    names = {"one.fit.out": "a", "one.fit.cost": "b", "one.step": "c", "two.fit.out": "d", "two.fit.cost": "e"}
    text = dump(used)
    for name, short in {**names, "two.step": "f"}.items():
        text = text.replace(name, short)
    steps = [build(compile_step(spec, backend), seed=3, device="cpu", dtype="float64") for spec in (used, load(text))]
    rng = np.random.default_rng(0)
    for _ in range(4):
        batch = {name: rng.normal(size=(3, 4)) for name in ("x", "y")}
        first, second = ({key: float(each) for key, each in step(batch).items()} for step in steps)
        assert [*first.values()] == [*second.values()]


def test_a_mistake_in_a_block_is_told_once_for_all_uses_that_make_it():
    from compiler import compile_step

    head = HEAD.replace("y: {shape: [batch, 4]}", "y: {shape: [batch, 3]}, z: {shape: [batch, 2]}")
    uses = "".join(
        f"  {name}: {{use: fitting, inputs: [x, {given}]}}\n" for name, given in {"a": "y", "b": "y", "c": "z"}.items()
    )
    with pytest.raises(SpecError) as raised:
        compile_step(load(f"{head}{BLOCKS}ops:\n{uses}  step: {{update: net, loss: a.cost}}\n"))
    assert [each.message.partition(",")[0] for each in raised.value.diagnostics] == [
        "loss 'a.cost': found shapes [batch",
        "loss 'c.cost': found shapes [batch",
    ]
