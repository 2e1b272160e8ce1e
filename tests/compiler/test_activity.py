"""Which ops fire in which step: clocks, sets of ops that fire together, modes and default outputs."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from compiler import Pace, Plan, compile_step
from compiler.ir.program import Gate
from compiler.passes.activate import find_undecided
from compiler.timing import firing_sets
from compiler.timing.firing_sets import enumerate_patterns, find_counts, lacks_functions
from compiler.timing.gates import count_on, find_period, fire, merge_alike, sort_gates
from graphspec import SpecError, load
from tests.compiler.conftest import codes, compiled, problems, program

TWO = """
  fa: {forward: a, inputs: x}
  la: {loss: mse, inputs: [fa, y]}
  step_a: {update: a, loss: la, CLOCK_A}
  fb: {forward: b, inputs: x}
  lb: {loss: mse, inputs: [fb, y]}
  step_b: {update: b, loss: lb, CLOCK_B}
"""
"""Two updates that have nothing to do with each other, each with a clock."""


def two(clock_a: str = "every: 1", clock_b: str = "every: 1", more: str = "") -> Plan:
    """Compile two updates with clocks, and more ops behind them."""
    return compiled(TWO.replace("CLOCK_A", clock_a).replace("CLOCK_B", clock_b) + more)


def simulate(plan: Plan, steps: int) -> list[set[str]]:
    """Return the updates, averages and copies that fire in each step, by the gates of the program."""
    program_of_mode = plan.program.mode("train")
    gated = {gate.op for gate in program_of_mode.gates}
    always = frozenset(plan.spec.ops) - gated
    counts: dict[str, int] = {}
    fired = []
    for step in range(1, steps + 1):
        now = fire(program_of_mode.gates, step, counts, always)
        for gate in program_of_mode.gates:
            if gate.clock == "writes" and is_counted(gate, step, now | always):
                counts[gate.op] = counts.get(gate.op, 0) + 1
        fired.append({op for op in now | always if plan.spec.ops[op].kind in ("update", "ema", "copy")})
    return fired


def is_counted(gate: Gate, step: int, fired: frozenset[str]) -> bool:
    """Return whether a gate that counts writes counts in a step."""
    within = (gate.start or 1) <= step <= (gate.until or step)
    return within and all(fired & set(group) for group in gate.follows)


def steps_of(plan: Plan, op: str, steps: int = 24) -> list[int]:
    """Return the steps, from 1, in which an op fires."""
    return [step for step, fired in enumerate(simulate(plan, steps), start=1) if op in fired]


def active_sets(plan: Plan) -> set[frozenset[str]]:
    """Return the sets of updates, averages and copies that fire together."""
    return {frozenset(function["active"]) for function in plan.to_json()["functions"]}


@pytest.mark.parametrize(
    ("clock", "steps"),
    [
        ("every: 1", list(range(1, 13))),
        ("every: 3", [3, 6, 9, 12]),
        ("every: 3, start: 2 steps", [2, 5, 8, 11]),
        ("start: 10 steps", [10, 11, 12]),
        ("until: 2 steps", [1, 2]),
        ("every: 2, start: 3 steps, until: 8 steps", [3, 5, 7]),
        ("every: 4, until: 8 steps", [4, 8]),
    ],
)
def test_every_start_and_until_count_steps_from_one(clock, steps):
    assert steps_of(two(clock_b=clock), "step_b", 12) == steps


def test_every_with_the_name_of_an_update_follows_that_update_exactly():
    plan = two("every: 3", "every: step_a")
    assert steps_of(plan, "step_b", 9) == [3, 6, 9]
    assert active_sets(plan) == {frozenset(), frozenset({"step_a", "step_b"})}


def test_every_of_an_average_counts_the_steps_in_which_its_source_was_written():
    plan = two("every: 3", more="  follow: {ema: a, into: slow_a, decay: 0.9, every: 2}\n")
    assert steps_of(plan, "follow", 24) == [6, 12, 18, 24]


def test_an_average_does_not_run_where_its_source_was_not_written():
    plan = two("every: 2", more="  follow: {ema: a, into: slow_a, decay: 0.9}\n")
    assert steps_of(plan, "follow", 8) == [2, 4, 6, 8]


def test_an_average_of_an_average_counts_the_writes_of_the_first():
    more = "  one: {ema: a, into: slow_a, decay: 0.9, every: 2}\n  two: {copy: slow_a, into: slower_a, every: 3}\n"
    plan = two("every: 2", more=more)
    assert steps_of(plan, "one", 24) == [4, 8, 12, 16, 20, 24]
    assert steps_of(plan, "two", 24) == [12, 24]


def test_a_source_with_two_writers_counts_once_a_step():
    more = """
  again: {forward: a, inputs: y, after: step_a}
  lc: {loss: mse, inputs: [again, y]}
  twice: {update: a, loss: lc, every: 2}
  follow: {ema: a, into: slow_a, decay: 0.9, every: 2}
"""
    assert steps_of(two("every: 3", more=more), "follow", 12) == [3, 6, 9, 12]


def test_an_average_with_a_start_fires_at_the_first_counted_step_and_then_at_every_kth():
    plan = two("every: 2", more="  follow: {ema: a, into: slow_a, decay: 0.9, every: 3, start: 5 steps}\n")
    assert steps_of(plan, "follow", 24) == [6, 12, 18, 24]


def test_there_is_one_function_for_every_set_of_ops_that_fire_together():
    plan = two("every: 2", "every: 3")
    assert active_sets(plan) == {
        frozenset(),
        frozenset({"step_a"}),
        frozenset({"step_b"}),
        frozenset({"step_a", "step_b"}),
    }


def test_sets_that_never_meet_have_no_function():
    plan = two("every: 2, start: 1 steps", "every: 2, start: 2 steps")
    assert active_sets(plan) == {frozenset({"step_a"}), frozenset({"step_b"})}


def test_stretches_before_and_after_starts_and_ends_have_functions_of_their_own():
    plan = two("until: 5 steps", "start: 1000 steps")
    assert active_sets(plan) == {frozenset({"step_a"}), frozenset(), frozenset({"step_b"})}


def test_an_op_that_never_fires_multiplies_no_function():
    plan = two(more="  idle: {forward: c, inputs: x, every: 2}\n")
    assert [function["active"] for function in plan.to_json()["functions"]] == [["step_a", "step_b"]]


def test_what_only_feeds_an_update_runs_only_in_its_steps():
    functions = two("every: 2").to_json()["functions"]
    ran = [{one["op"] for one in function["instructions"]} for function in functions]
    assert [("fa" in ops, "fb" in ops) for ops in ran] == [(False, True), (True, True)]


def test_a_value_used_in_steps_in_which_its_op_does_not_fire_is_an_error():
    ops = TWO.replace("CLOCK_A", "every: 1").replace("CLOCK_B", "every: 1")
    assert codes(ops.replace("forward: b, inputs: x", "forward: b, inputs: x, every: 2")) == ["E-ABSENT"]
    assert (
        codes(
            TWO.replace("CLOCK_A", "every: 1")
            .replace("CLOCK_B", "every: 2")
            .replace("forward: b, inputs: x", "forward: b, inputs: x, every: 2")
        )
        == []
    )


def test_clocks_that_hardly_ever_repeat_are_refused():
    (found,) = problems(TWO.replace("CLOCK_A", "every: 9973").replace("CLOCK_B", "every: 9967"))
    assert found.code == "E-CLOCKS"
    assert found.message.startswith(
        "the clocks of step_a, step_b only repeat after 99,400,891 steps; up to 4 functions"
    )


@pytest.mark.parametrize(
    ("slow", "place"),
    [
        ("step: {update: net, loss: l}\n  e: {ema: net, decay: 0.9, every: 9973}", "9973}"),
        ("step: {update: net, loss: l}\n  e: {ema: net, decay: 0.9, use: {write_back: {every: 9973}}}", "e: {ema"),
    ],
)
def test_the_clock_that_hardly_ever_repeats_is_the_place(slow, place):
    """What is drawn, and a group that is frozen for some time, have gates, too, and are no ops."""
    text = f"""
graphspec: 1
name: slow
inputs: {{x: {{shape: [batch, 4]}}}}
models:
  net:
    layers: [{{linear: 4}}, {{linear: 4}}]
    optimizer: sgd
    groups: {{match: "^0", frozen: {{until: 5 steps}}}}
ops:
  drawn:
    {{sometimes: 0.5, mode: train, ops: {{n: {{random: normal, like: x}}, seen: {{expr: x + n}}}}, else: {{seen: x}}}}
  y: {{forward: net, inputs: drawn.seen}}
  l: {{loss: mse, inputs: [y, x]}}
  {slow}
  f: {{ema: net, decay: 0.5, every: 9967}}
"""
    with pytest.raises(SpecError) as caught:
        compile_step(load(text))
    found = next(each for each in caught.value.diagnostics if each.code == "E-CLOCKS")
    assert text.splitlines()[found.span.line - 1][found.span.column - 1 :].startswith(place)


@pytest.mark.parametrize(
    ("gates", "most"),
    [
        ((Gate(op="a", every=2), Gate(op="b", every=3)), 4),
        ((Gate(op="a", every=2), Gate(op="b", every=2)), 2),
        ((Gate(op="a", every=2), Gate(op="b", clock="writes", follows=(("a",),)), Gate(op="c", every=3)), 4),
        ((Gate(op="a", every=2), *(Gate(op=n, draw="d", low=k / 3, high=(k + 1) / 3) for k, n in enumerate("xyz"))), 6),
    ],
)
def test_as_many_functions_as_the_message_says(monkeypatch, gates, most):
    """Where no clock excludes another, the bound is the number of sets that are found."""
    found = enumerate_patterns(gates, frozenset())
    assert len(found) == most
    monkeypatch.setattr("compiler.timing.firing_sets.LONGEST_PERIOD", 1)
    with pytest.raises(ValueError, match=f"up to {most} functions"):
        enumerate_patterns(gates, frozenset())


@pytest.mark.parametrize("seed", range(40))
def test_the_enumerated_sets_are_those_of_a_step_by_step_simulation(seed):
    random = Random(seed)
    gates = [
        Gate(
            op=f"g{index}",
            every=random.randint(1, 5),
            start=random.choice([None, None, random.randint(1, 30)]),
            until=random.choice([None, None, random.randint(31, 60)]),
        )
        for index in range(random.randint(1, 3))
    ]
    follows = ((gates[0].op,),)
    gates.append(
        Gate(op="w", clock="writes", every=random.randint(1, 4), start=random.choice([None, 7]), follows=follows)
    )
    seen: dict[frozenset[str], None] = {}
    count = 0
    for step in range(1, 61 + 2 * find_period(gates)):
        now = {gate.op for gate in gates[:-1] if is_due(gate, step)}
        if is_counted(gates[-1], step, frozenset(now)):
            due = count % gates[-1].every == 0 if gates[-1].start else (count + 1) % gates[-1].every == 0
            now |= {"w"} if due else set()
            count += 1
        seen.setdefault(frozenset(now))
    assert list(enumerate_patterns(sort_gates(gates, ()), frozenset())) == list(seen)


def test_windows_that_count_the_same_steps_turn_together():
    follows = (("half",),)
    windows = [Gate(op=f"w{index}", clock="writes", every=2 + index % 2, follows=follows) for index in range(20)]
    gates = [Gate(op="half", every=2), *windows]
    assert find_period(gates) == 2 * 6
    steps = {frozenset(w.op for w in windows if count % w.every == 0) | {"half"} for count in range(1, 7)}
    assert {*enumerate_patterns(sort_gates(gates, ()), frozenset())} == {*steps, frozenset()}


@pytest.mark.parametrize("seed", range(120))
def test_gates_that_are_merged_open_in_the_same_steps(seed):
    """Of any data sets, starts, ends, epochs and draws, following what always fires, one another, or nothing."""
    random, always = Random(seed), {"a": frozenset({"call", "on_a"}), "b": frozenset({"call", "on_b"})}
    gates: list[Gate] = []
    for index in range(random.randint(4, 12)):
        followed = ["call", "on_a", "on_b", *(gate.op for gate in gates)]
        groups = [tuple(random.sample(followed, random.randint(1, 2))) for _ in range(random.randint(1, 2))]
        draw = random.choice(["", "", "", "die", "coin"])
        where = random.choice([(), (), (), ("a",), ("b",)])
        low, high = random.choice([(0.0, 0.5), (0.5, 1.0), (0.0, 1.0)])
        gate = Gate(
            op=f"g{index}",
            clock="writes",
            every=random.randint(1, 3),
            start=random.choice([None, None, None, 5]),
            until=random.choice([None, None, None, 30]),
            follows=tuple(groups),
            datasets=where,
            epoch=random.choice([None, None, None, 7]),
            draw=draw,
            low=low if draw else 0.0,
            high=high if draw else 1.0,
            flush=random.random() < 0.3,
        )
        plain = Gate(op=gate.op, every=gate.every, start=gate.start, datasets=where)
        if gates and random.random() < 0.6:
            change = random.choice([{}, {"flush": True, "epoch": 7}, {"low": low, "high": high}, {"datasets": where}])
            gate = replace(random.choice(gates), op=gate.op, **change)
        gates.append(random.choice([gate, gate, plain]))
    merged, alike = merge_alike(gates, always.values())
    counts = [dict.fromkeys((gate.op for gate in each), 0) for each in (gates, merged)]
    for step in range(1, 80):
        dataset, draws = random.choice("ab"), {name: random.random() for name in ("die", "coin")}
        fired = [
            fire(each, step, known, always[dataset], dataset, draws=draws)
            for each, known in zip((gates, merged), counts, strict=True)
        ]
        assert fired[0] == {op for name in fired[1] for op in alike.get(name, (name,))}
        for each, known, now in zip((gates, merged), counts, fired, strict=True):
            found = {gate.op: count_on(gate, known[gate.op], step, now | always[dataset], dataset) for gate in each}
            known.update(found)
        assert all(counts[0][op] == counts[1][name] for name, ops in alike.items() for op in ops)


@pytest.mark.parametrize("seed", range(80))
def test_sets_and_counts_are_those_of_gates_that_are_not_merged(monkeypatch, seed):
    """Of gates that are often equal, with counts that two may share, held ops, and any counts to resume with."""
    random, always = Random(seed), {"": frozenset({"call", "held"})}
    gates: list[Gate] = []
    for index in range(random.randint(3, 6)):
        followed = ["call", "held", *(gate.op for gate in gates)]
        windows = [gate.op for gate in gates if gate.clock == "writes" and not gate.counts_with]
        shares = random.choice(windows) if windows and random.random() < 0.3 else ""
        every = next((gate.every for gate in gates if gate.op == shares), random.randint(1, 3))
        follows = ((random.choice(["call", random.choice(followed)]),),)
        gates.append(Gate(op=f"g{index}", clock="writes", every=every, follows=follows, counts_with=shares))
    held = {"held"}
    for gate in gates * len(gates):  # a count is held with any of the gates that share it
        if not held.isdisjoint({gate.counter, *gate.follows[0]}):
            held |= {gate.op, gate.counter}
    undecided = frozenset(held - {"held"})
    counts = {gate.op: random.randrange(gate.every) for gate in gates if not gate.counts_with}

    def find() -> tuple[object, ...]:
        """Return the sets, the counts after some steps, and whether a step that resumes meets another set."""
        sets = enumerate_patterns(gates, always[""], undecided)
        lacking = lacks_functions(gates, always, undecided, 5, counts)
        return sets, find_counts(gates, always, undecided, 7), lacking

    found = find()
    monkeypatch.setattr("compiler.timing.firing_sets.merge_alike", lambda gates, *_: (tuple(gates), {}))
    assert found == find()


def test_what_has_counted_differently_is_not_merged():
    gates = [Gate(op=op, clock="writes", every=4, follows=(("call",),)) for op in "xyz"]
    merged, alike = merge_alike(gates, [frozenset({"call"})], counts={"x": 1, "y": 3, "z": 1})
    assert [gate.op for gate in merged] == ["x", "y"]
    assert alike == {"x": ("x", "z")}
    held, none = merge_alike(gates, [frozenset({"call"})], apart={"x", "z"})
    assert [gate.op for gate in held] == ["x", "y", "z"]
    assert none == {}


def test_the_members_of_an_ensemble_turn_together():
    """Twenty models with a window of four steps and an average of every second update need three functions."""
    members = range(20)
    models = "".join(f"  m{at}: {{layers: [{{linear: 4}}], optimizer: sgd}}\n" for at in members)
    ops = "".join(
        f"  y{at}: {{forward: m{at}, inputs: x}}\n  l{at}: {{loss: mse, inputs: [y{at}, x]}}\n"
        f"  u{at}: {{update: m{at}, loss: l{at}, accumulate: 4}}\n  e{at}: {{ema: m{at}, decay: 0.9, every: 2}}\n"
        for at in members
    )
    plan = compile_step(
        load(f"graphspec: 1\nname: e\ninputs: {{x: {{shape: [batch, 4]}}}}\nmodels:\n{models}ops:\n{ops}")
    )
    program = plan.program.mode("train")
    written = [{at for at in function.active if at[0] in "ue"} for function in program.functions]
    updates, averages = ({f"{kind}{at}" for at in members} for kind in "ue")
    assert sorted(written, key=len) == [set(), updates, updates | averages]


def drawn(fast: int, slow: int, *others: Gate) -> tuple[Gate, ...]:
    """Return the gates of an update that half of all steps take, and of two averages that count it."""
    follows = (("half",),)
    averages = [Gate(op="fast", clock="writes", every=fast, follows=follows)]
    averages.append(Gate(op="slow", clock="writes", every=slow, follows=follows))
    return (Gate(op="half", draw="d", high=0.5), Gate(op="other", draw="d", low=0.5), *others, *averages)


@pytest.mark.parametrize("span", [(None, None), (3000, None), (70, 50_000)])
def test_each_count_of_what_is_drawn_is_taken_on_once(monkeypatch, span):
    taken: list[int] = []
    monkeypatch.setattr(
        firing_sets, "fire", lambda gates, step, *rest: (taken.append(step), fire(gates, step, *rest))[1]
    )
    start, until = span
    found = enumerate_patterns(drawn(89, 97, Gate(op="now", every=7, start=start, until=until)), frozenset())
    chosen = [{"other"}, *({"half", *more} for more in ((), ("fast",), ("slow",), ("fast", "slow")))]
    assert set(found) == {frozenset((*each, *more)) for each in chosen for more in ((), ("now",))}
    assert len(taken) < 1000  # 89 * 97 counts, in 7 places of a round, fire in few ways


@pytest.mark.parametrize("seed", range(12))
def test_counts_of_what_is_drawn_are_those_of_every_way_to_draw(seed):
    random = Random(seed)
    moment = {"start": random.randint(1, 40), "until": random.randint(41, 80)}
    gates = drawn(random.randint(2, 7), random.randint(2, 7), Gate(op="now", every=random.randint(1, 3), **moment))
    gates = (*gates, Gate(op="twice", clock="writes", every=random.randint(1, 4), follows=(("now",),)))
    counting, states = gates[-3:], {(0, 0, 0)}
    steps = random.randint(0, 200)
    for step in range(1, steps + 1):
        after = set()
        for state in states:
            counts = {gate.op: count for gate, count in zip(counting, state, strict=True)}
            for number in (0.0, 0.5):
                fired = fire(gates, step, counts, frozenset(), draws={"d": number})
                after.add(tuple(count_on(gate, counts[gate.op], step, fired) for gate in counting))
        states = after
    found = find_counts(gates, {"": frozenset()}, frozenset(), steps)
    assert {tuple(each.values()) for each in found} == states


def test_too_many_functions_are_not_enumerated(monkeypatch):
    monkeypatch.setattr("compiler.passes.functions.MOST_FUNCTIONS", 4)
    monkeypatch.setattr("compiler.passes.eval_averages.MOST_FUNCTIONS", 4)
    clocks = "".join(f"  e{n}: {{ema: a, decay: 0.5, every: {n}}}\n" for n in (2, 3, 5, 7, 11))
    found = problems(TWO.replace("CLOCK_A", "every: 1").replace("CLOCK_B", "every: 1") + clocks)
    assert [each.code for each in found] == ["GS061"]
    assert "up to 32 functions, at most 4" in found[0].message


def test_gates_that_count_what_may_be_held_are_due_in_any_step_that_counts():
    gates = (
        Gate(op="u", every=2),
        Gate(op="mean", clock="writes", every=3, follows=(("u",),)),
        Gate(op="slow", clock="writes", every=3, follows=(("u",),)),
        Gate(op="other", clock="writes", every=2, follows=(("w",),)),
    )
    found = enumerate_patterns(gates, frozenset({"w"}), frozenset({"mean", "slow", "other"}))
    followed = [frozenset(), frozenset({"mean", "slow"})]
    expected = {frozenset(), frozenset({"other"})}
    expected |= {frozenset({"u"}) | one | two for one in followed for two in (frozenset(), frozenset({"other"}))}
    assert set(found) == expected


def test_what_follows_an_undecided_gate_is_undecided_too():
    gates = (
        Gate(op="mean", clock="writes", every=2, follows=(("u",),)),
        Gate(op="often", clock="writes", follows=(("mean",),)),
        Gate(op="slow", clock="writes", every=2, follows=(("often",),)),
        Gate(op="other", clock="writes", every=2, follows=(("w",),)),
    )
    assert find_undecided(gates, {"u"}) == {"mean", "slow"}
    assert find_undecided(gates, {"w"}) == {"other"}


def is_due(gate: Gate, step: int) -> bool:
    """Return whether a step is one of start, start + every, ..., or every, 2 * every, ..., up to until."""
    due = range(gate.start if gate.start is not None else gate.every, 10_000, gate.every)
    return step in due and (gate.until is None or step <= gate.until)


def test_by_default_a_step_returns_the_metrics_and_the_losses_that_fire_anyway():
    plan = two("every: 1", "every: 2", more="  seen: {metric: mean, inputs: la}\n")
    returned = [function["instructions"][-1]["values"] for function in plan.to_json()["functions"]]
    assert returned == [["la", "seen"], ["la", "lb", "seen"]]


def test_by_default_a_loss_that_feeds_no_update_fires_and_is_returned():
    plan = two(more="  watched: {loss: l1, inputs: [fa, y]}\n")
    assert plan.to_json()["functions"][0]["instructions"][-1]["values"] == ["la", "lb", "watched"]


def test_by_default_eval_mode_returns_the_metrics():
    plan = two(more="  seen: {metric: mean, inputs: la}\n")
    assert plan.to_json("eval")["functions"][0]["instructions"][-1]["values"] == ["seen"]


def test_written_outputs_are_returned_and_metrics_still_run():
    ops = TWO.replace("CLOCK_A", "every: 1").replace("CLOCK_B", "every: 1")
    plan = compiled(ops + "  seen: {metric: mean, inputs: la}\noutputs: [fa]")
    instructions = plan.to_json()["functions"][0]["instructions"]
    assert instructions[-1]["values"] == ["fa"]
    assert "seen" in [one["op"] for one in instructions]


def test_an_output_makes_its_op_run_in_every_step():
    plan = two("every: 2", more="outputs: [la]")
    assert all("fa" in [one["op"] for one in function["instructions"]] for function in plan.to_json()["functions"])


def test_a_train_mode_forward_that_nobody_uses_runs_for_its_statistics():
    ops = """
  first: {forward: n, inputs: x}
  l: {loss: mse, inputs: [first, y]}
  step: {update: n, loss: l}
  warm: {forward: n, inputs: y}
"""
    assert "warm" in [one["op"] for one in compiled(ops).to_json()["functions"][0]["instructions"]]
    assert codes(ops.replace("warm: {forward: n", "warm: {forward: a")) == ["W-DEAD"]


def test_updates_averages_and_copies_belong_to_train_mode():
    plan = two(more="  follow: {ema: a, into: slow_a, decay: 0.9}\noutputs: [fa, fb]")
    assert [function["active"] for function in plan.to_json("eval")["functions"]] == [[]]


def test_a_mode_that_an_op_names_has_a_program():
    plan = two(more="  seen: {metric: mean, inputs: fa, mode: test}\n")
    assert [mode.mode for mode in plan.program.modes] == ["train", "eval", "test"]
    assert plan.to_json("test")["functions"][0]["instructions"][-1]["values"] == ["seen"]


def test_models_evaluate_outside_train_mode():
    plan = compiled("""
  fn: {forward: n, inputs: x}
  l: {loss: mse, inputs: [fn, y]}
  step: {update: n, loss: l}
outputs: [l]""")
    trains = [
        one["train"]
        for mode in ("train", "eval")
        for one in plan.to_json(mode)["functions"][0]["instructions"]
        if one["op"] == "fn"
    ]
    assert trains == [True, False]


def test_the_delayed_programs_have_one_function_with_and_one_without_the_delayed_ops():
    delayed = {"step_actor", "follow_actor", "follow_1", "follow_2"}
    assert active_sets(program("td3")) == {frozenset({"step_critics"}), frozenset({"step_critics"} | delayed)}
    assert active_sets(program("dqn")) == {frozenset({"step"}), frozenset({"step", "renew"})}
    assert steps_of(program("dqn"), "renew", 2001) == [1000, 2000]


@pytest.mark.parametrize(
    ("clock", "more"),
    [
        ("until: 2, accumulate: 3", ""),
        ("every: 7, until: 5", ""),
        ("every: 1", "  follow: {ema: b, decay: 0.9, every: 3, until: 2}\n"),
        ("every: 2, start: 2 steps", "  follow: {ema: b, decay: 0.9, until: 1}\n"),
    ],
)
def test_a_write_that_no_step_reaches_is_refused(clock: str, more: str) -> None:
    ops = TWO.replace("CLOCK_A", "every: 1").replace("CLOCK_B", clock)
    assert [each.code for each in problems(ops + more)] == ["GS120"]


@pytest.mark.parametrize("held", ["", "precision: {loss_scale: dynamic}\n"])
def test_a_window_that_no_epoch_fills_is_refused(held: str) -> None:
    """Three steps do not fit into an epoch of two; in one of three, or where the window goes on, they do."""
    text = """
graphspec: 1
name: short
inputs: {x: {shape: [batch, 4]}}
models: {a: {layers: [{linear: 4}], optimizer: sgd}}
ops:
  f: {forward: a, inputs: x}
  l: {loss: mse, inputs: [f, x]}
  u: {update: a, loss: l, accumulate: {steps: 3, on_epoch_end: ENDING}}
  slow: {ema: a, decay: 0.9, every: 2}
"""
    for epoch, ending in ((2, "drop"), (3, "drop"), (2, "carry")):
        spec = load(text.replace("ENDING", ending) + held)
        found: list[str] = []
        try:
            compile_step(spec, pace=Pace(epoch=epoch, batch=4))
        except SpecError as error:
            found = [str(error).splitlines()[0], *(each.code for each in error.diagnostics if each.severity == "error")]
        why = "error[GS120]: op 'u' never runs: an epoch ends before its window of 3 steps is full, and discards it"
        assert found == ([why, "GS120"] if (epoch, ending) == (2, "drop") else []), (epoch, ending)


def test_a_long_interval_costs_no_functions():
    assert active_sets(two("every: 99999")) == {frozenset({"step_b"}), frozenset({"step_a", "step_b"})}


PACED = """
  la_in: {forward: a, inputs: x}
  la: {loss: mse, inputs: [la_in, y]}
  step_a: {update: a, loss: la}
  lb_in: {forward: b, inputs: x}
  lb: {loss: mse, inputs: [lb_in, y]}
  step_b: {update: b, loss: lb, every: 2}
  follow: {ema: a, half_life: 10 updates, every: step_b}
"""


def test_a_half_life_compounds_over_the_writes_between_the_steps_of_a_named_update():
    plan = compiled(PACED)
    (blend,) = {
        instruction.decay
        for function in plan.program.mode("train").functions
        for instruction in function.instructions
        if type(instruction).__name__ == "Blend"
    }
    assert blend == pytest.approx(2 ** (-2 / 10))


def test_a_half_life_over_an_uneven_pace_is_refused():
    assert "E-INTERVAL" in codes(PACED.replace("every: 2", "every: 2, start: 5"))
