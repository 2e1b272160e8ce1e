"""`sparse: lazy` writes only rows that have a gradient; without it a step has the numbers of a dense gradient."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build, emit
from tests.conformance.scenario import BACKENDS
from tests.features.steps import set_weights, weights
from tests.features.tables import DENSE, SPEC, START, Rule, batches, begin, slopes

pytestmark = pytest.mark.row("C12")

TABLE = "table.0.weight"
RULES: Mapping[str, Mapping[str, float]] = {
    "{name: adam, lr: 0.1": {},
    "{name: sgd, lr: 0.1": {},
    "{name: adagrad, lr: 0.1, initial_accumulator_value: 0.1": {"first": 0.1},
}


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "dense"])
@pytest.mark.parametrize("optimizer", RULES)
def test_rules_step_the_rows_that_they_should(optimizer: str, lazy: bool, backend: str) -> None:
    step = begin(optimizer + (", sparse: lazy}" if lazy else "}"), backend)
    rule = Rule(optimizer.partition("name: ")[2].partition(",")[0], 0.1, lazy=lazy, **RULES[optimizer])
    for batch in batches(8):
        step(batch)
        rule.step(slopes(batch), batch["ids"])
    assert all(np.abs(weights(step)[name] - value).max() < 1e-12 for name, value in rule.w.items())
    assert np.array_equal(weights(step)[TABLE][-1], START[TABLE][-1])
    assert np.abs(weights(step)[TABLE][:-1] - START[TABLE][:-1]).min() > 1e-3


@pytest.mark.parametrize(
    "optimizer", ["adamw", "rmsprop", "{name: sgd, momentum: 0.9}", "{name: adagrad, weight_decay: 1}"]
)
def test_other_rules_have_the_numbers_of_dense_gradients(optimizer: str, backend: str) -> None:
    sparse, dense = (begin(optimizer, backend, ", clip: {norm: 1.0}", text=text) for text in (SPEC, DENSE))
    for batch in batches(5):
        sparse(batch)
        dense(batch)
    found, expected = weights(sparse), weights(dense)
    assert all(np.allclose(found[name], value, rtol=0, atol=1e-14) for name, value in expected.items())


PEERS = {
    "{name: adam, lr: 0.1, eps: 1e-14, sparse: lazy}": ("SparseAdam", {"lr": 0.1, "eps": 1e-14}),  # whose eps is scaled
    "{name: adagrad, lr: 0.1, sparse: lazy}": ("Adagrad", {"lr": 0.1}),
    "{name: sgd, lr: 0.1, sparse: lazy}": ("SGD", {"lr": 0.1}),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("optimizer", PEERS)
def test_they_are_the_rules_of_torch_optim_for_sparse_tensors(optimizer: str, backend: str) -> None:
    import torch

    name, options = PEERS[optimizer]
    table = torch.nn.Embedding.from_pretrained(torch.tensor(START[TABLE]), freeze=False, sparse=True)
    peer = getattr(torch.optim, name)(table.parameters(), **options)
    step = begin(optimizer, backend)
    for batch in batches(8):
        step(batch)
        peer.zero_grad()
        with torch.sparse.check_sparse_tensor_invariants(True):
            (table(torch.as_tensor(batch["ids"])) * torch.as_tensor(batch["g"])).sum().backward()
            peer.step()
    assert np.abs(weights(step)[TABLE] - table.weight.detach().numpy()).max() < 1e-12


GROUPED = SPEC.replace("sparse: true}}]}", "sparse: true}}, {linear: 3}], optimizer: WHOLE, groups: [GROUP]}")
GROUPED = GROUPED.replace(", optimizer: OPTIMIZER", "").replace("[table, other]", "table")


@pytest.mark.parametrize(
    ("whole", "group"),
    [
        ("{name: sgd, lr: 0.2}", "{match: '^0', optimizer: {name: adam, lr: 0.1, sparse: lazy}}"),
        ("{name: adam, lr: 0.2, sparse: lazy}", "{match: '^0', lr_scale: 0.5}"),
    ],
)
def test_a_table_may_be_a_group(whole: str, group: str, backend: str) -> None:
    text = GROUPED.replace("WHOLE", whole).replace("GROUP", group)
    step = begin("", backend, text=text[: text.index("  vector")] + "  step: {update: table, loss: one}\n")
    rule = Rule("adam", 0.1, lazy=True)
    for batch in batches(5):
        back = batch["g"] @ weights(step)["table.1.weight"]
        step(batch)
        rule.step({TABLE: slopes({**batch, "g": back})[TABLE]}, batch["ids"])
    assert np.abs(weights(step)[TABLE] - rule.w[TABLE]).max() < 1e-12


@pytest.mark.parametrize("taken", BACKENDS)
def test_a_run_goes_on_in_the_middle_of_a_window(taken: str, backend: str) -> None:
    optimizer, more = "{name: adam, lr: 0.1, sparse: lazy}", ", accumulate: {steps: 3, reduce: steps}"
    whole, first, second = (
        begin(optimizer, backend, more),
        begin(optimizer, taken, more),
        begin(optimizer, backend, more),
    )
    every = [*batches(7)]
    for batch in every:
        whole(batch)
    for batch in every[:4]:
        first(batch)
    state = first.state()
    assert state.arrays["windows.step.ids.table.0.weight"].size <= 4
    second.restore(state)
    for batch in every[4:]:
        second(batch)
    found, expected = second.state().arrays, whole.state().arrays
    assert all(
        np.allclose(found[name], expected[name], rtol=0, atol=1e-14) for name in expected if "windows" not in name
    )


def test_averages_and_evaluation_are_those_of_a_dense_table(backend: str) -> None:
    average = "  slow: {ema: table, decay: 0.5}\n"
    step = begin("{name: adagrad, lr: 0.1}", backend, end=average + "outputs: [cost]\n")
    set_weights(step, {"slow.0.weight": START[TABLE]})
    rule, slow = Rule("adagrad", 0.1, lazy=False), START[TABLE].copy()
    for batch in batches(4):
        step(batch)
        rule.step(slopes(batch), batch["ids"])
        slow = 0.5 * slow + 0.5 * rule.w[TABLE]
    assert np.abs(weights(step)["slow.0.weight"] - slow).max() < 1e-12
    last = slopes(batch)
    expected = sum(float((rule.w[name] * slope).sum()) for name, slope in last.items())
    assert float(step(batch, "eval")["cost"]) == pytest.approx(expected)


def test_plans_say_where_gradients_are_rows(backend: str) -> None:
    text = SPEC.replace("OPTIMIZER", "{name: adam, sparse: lazy}, clip: {norm: 1.0}")
    lines = compile_step(load(text), backend).text().splitlines()
    assert [line.split()[1] for line in lines if line.endswith("rows]")] == ["gradient", "transform", "apply"]
    assert any(line.endswith("sparse lazy") for line in lines)


LARGE = SPEC.replace("count: 6", "count: 1000")


def run_alone(text: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return the names of an emitted file, which imports nothing of this project."""
    emitted = emit(compile_step(load(text), backend))
    nodes = [*ast.walk(ast.parse(emitted))]
    homes = {each.module or "" for each in nodes if isinstance(each, ast.ImportFrom)}
    homes |= {alias.name for each in nodes if isinstance(each, ast.Import) for alias in each.names}
    assert {home.partition(".")[0] for home in homes}.isdisjoint({"runtime", "compiler", "graphspec"})
    module = types.ModuleType("emitted")
    monkeypatch.setitem(sys.modules, "emitted", module)
    exec(compile(emitted, "emitted.py", "exec"), module.__dict__)
    module.build(seed=0)
    return vars(module)


MORE = ", sparse: lazy}, accumulate: {steps: 2, reduce: sum}, clip: {norm: 1.0}"
WATCHED = [("adam", ""), ("adagrad", ""), ("sgd", ""), ("adam", "precision: {loss_scale: {initial: 1024.0}}\n")]
"""Rules, and what is written behind the spec."""


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("rule", "end"), WATCHED, ids=["adam", "adagrad", "sgd", "scaled"])
def test_no_table_is_made_of_a_gradient_on_torch(rule: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    names = run_alone(LARGE.replace("OPTIMIZER", f"{{name: {rule}{MORE}") + end, "torch", monkeypatch)
    (table,) = names["MODELS"]["table"].parameters()
    before, made = table.detach().clone(), list[str]()

    class Watch(TorchDispatchMode):
        """Notes what gives a new tensor that is as large as the table; sparse ones and views have no storage for it."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            given = {id(each) for each in args if isinstance(each, torch.Tensor)}
            if isinstance(out, torch.Tensor) and out.layout is torch.strided and out.shape == table.shape:
                own = out.untyped_storage().data_ptr() != table.untyped_storage().data_ptr()
                made.extend([str(func)] if own and id(out) not in given else [])
            return out

    with Watch():
        for batch in batches(2):
            names["step"](
                {
                    name: torch.as_tensor(value, dtype=None if name == "ids" else torch.float32)
                    for name, value in batch.items()
                }
            )
    assert not made
    assert sorted(torch.nonzero((table != before).any(1)).flatten().tolist()) == sorted(
        {int(each) for batch in batches(2) for each in batch["ids"]}
    )


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize(("rule", "end"), WATCHED, ids=["adam", "adagrad", "sgd", "scaled"])
def test_no_table_is_made_of_a_gradient_on_tensorflow(rule: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    names = run_alone(LARGE.replace("OPTIMIZER", f"{{name: {rule}{MORE}") + end, "tensorflow", monkeypatch)
    (table,) = names["MODELS"]["table"].parameters()
    before = table.numpy()
    for batch in batches(2):
        names["step"](
            {name: tf.constant(value, None if name == "ids" else tf.float32) for name, value in batch.items()}
        )
    moved = sorted(np.flatnonzero((table.numpy() != before).any(1)).tolist())
    assert moved == sorted({int(each) for batch in batches(2) for each in batch["ids"]})
    functions = [
        each for mode in names["FUNCTIONS"].values() for each in (mode.values() if isinstance(mode, dict) else [mode])
    ]
    graphs = [each.graph.graph for each in functions if each.graph is not None]
    made = [each for graph in graphs for op in graph.get_operations() for each in op.outputs]
    assert len(made) > 50
    assert not [each for each in made if each.shape.rank and each.shape == table.shape]


def test_a_rule_that_cannot_be_lazy_names_those_that_can() -> None:
    with pytest.raises(SpecError, match=r"(?s)GS112.*`rmsprop` has no option 'sparse'.*`sgd`, `adam` and `adagrad`"):
        load(SPEC.replace("OPTIMIZER", "{name: rmsprop, sparse: lazy}"))


BAD = {
    "missing: skip": (", missing: skip", "has `missing: skip`"),
    "missing: zero": (", missing: zero", "has `missing: zero`"),
    "agc": (", clip: {agc: 0.1}", "applies `clip_agc`"),
    "constraint": (", constraint: non_negative", "`constraint` is about all rows"),
}


@pytest.mark.parametrize("more", BAD)
def test_what_needs_all_rows_is_refused_in_an_update(more: str, backend: str) -> None:
    written, message = BAD[more]
    text = SPEC.replace("optimizer: OPTIMIZER", f"optimizer: adam{written}")
    with pytest.raises(SpecError, match=f"E-ROWS.*{message}"):
        compile_step(load(text), backend)
    compile_step(load(text.replace(", sparse: true", "")), backend)


WHERE = {
    "weight decay": ("{name: adam, sparse: lazy, weight_decay: 0.1}", "", "`weight_decay` would change the others"),
    "momentum": ("{name: sgd, sparse: lazy, momentum: 0.1}", "", "`momentum` would change the others"),
    "inside": ("{name: sgd, sparse: lazy, momentum_form: lr_inside}", "", "`momentum_form` would change the others"),
    "group": (
        "{name: adam, sparse: lazy}",
        "groups: [{match: '^0', weight_decay: 0.1}]",
        "`weight_decay` would change",
    ),
    "frozen": ("adam", "groups: [{match: '^0', frozen: true}]", "a group freezes it"),
    "for now": ("adam", "groups: [{match: '^1', frozen: {until: 3}}]", "frozen for some time"),
    "penalty": ("adam", "regularizer: {l2: 0.1}", "`regularizer` is about all rows"),
    "constraint": ("adam", "constraint: unit_norm", "`constraint` is about all rows"),
    "no table": ("adam", "groups: [{match: '^1', optimizer: {name: adam, sparse: lazy}}]", "steps no table"),
}
OPS = {
    "noise": ("g2: {transform: noise, inputs: g1, args: {std: 0.1}}", "applies `noise`"),
    "own": ("g2: {transform: 'tests.features.factories:make_lazy_torch', inputs: g1}", "applies `make_lazy_torch`"),
    "adapt": ("fast: {adapt: table, gradients: g1, lr: 0.1}", "reads a gradient set"),
}
DEEP = SPEC.replace("sparse: true}}]}", "sparse: true}}, {linear: 3}], optimizer: WHOLE, MORE}")
DEEP = DEEP[: DEEP.index("  vector")] + "  step: {update: table, loss: one}\n"


@pytest.mark.parametrize("case", WHERE)
def test_what_needs_all_rows_is_refused_in_a_model(case: str) -> None:
    optimizer, more, message = WHERE[case]
    text = DEEP.replace("WHOLE", optimizer).replace(", MORE", f", {more}" if more else "")
    with pytest.raises(SpecError, match=f"E-ROWS.*{message}"):
        compile_step(load(text))
    compile_step(load(text.replace(", sparse: true", "").replace("sparse: lazy", "sparse: dense")))


@pytest.mark.parametrize("case", OPS)
def test_what_reads_a_set_as_tensors_is_refused(case: str) -> None:
    line, message = OPS[case]
    lines = f"  g1: {{gradient: one, wrt: table}}\n  {line}\n"
    text = DEEP.replace("WHOLE, MORE", "adam").replace("  step:", f"{lines}  step:")
    text = text.replace("loss: one}", "gradients: g2}") if "g2" in line else text
    with pytest.raises(SpecError, match=f"E-ROWS.*{message}"):
        compile_step(load(text))


def test_a_penalty_on_other_parameters_is_added_beside_rows(backend: str) -> None:
    text = DEEP.replace("WHOLE, MORE", "{name: adagrad, lr: 0.1}, regularizer: {l2: 0.5, match: '^1'}")
    sparse, dense = (begin("", backend, text=each) for each in (text, text.replace(", sparse: true", "")))
    for batch in batches(3):
        sparse(batch)
        dense(batch)
    assert all(np.allclose(weights(sparse)[name], value, rtol=0, atol=1e-14) for name, value in weights(dense).items())


@pytest.mark.needs("tensorflow")
def test_xla_is_refused() -> None:
    plan = compile_step(load(SPEC.replace("OPTIMIZER", "adam")), "tensorflow")
    with pytest.raises(SpecError, match=r"GS268.*fixed sizes"):
        build(plan, device="cpu", jit_compile=True)


@pytest.mark.needs("torch")
def test_a_model_is_not_given_in_the_place_of_one_with_rows() -> None:
    from torch import nn

    plan = compile_step(load(SPEC.replace("OPTIMIZER", "adam")), "torch")
    with pytest.raises(SpecError, match=r"GS208.*is rows"):
        build(plan, device="cpu", models={"table": nn.Sequential(nn.Embedding(6, 3))})


def test_an_update_says_where_sparse_is_written() -> None:
    with pytest.raises(SpecError, match=r"GS056.*an optimizer steps") as caught:
        load(SPEC.replace("optimizer: OPTIMIZER", "optimizer: adam, sparse: lazy"))
    assert "`optimizer: {name: adam, sparse: lazy}`" in str(caught.value)
