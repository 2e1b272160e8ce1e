"""Graphs declared in Python are the specs that documents declare."""

from __future__ import annotations

import runpy
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from compiler import compile_step
from graphspec import Graph, SpecError, dump, library, load
from graphspec.declare.ops import CallOp, LossOp
from graphspec.library import adam, clip, concat, lerp, mean, metrics, mse, schedule, split, transforms
from graphspec.python.records import ArgumentError
from runtime import build
from tests.graphspec.functions import write_all
from tests.graphspec.graphs import Rebuilder

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
VALID = sorted((ROOT / "tests" / "golden" / "valid").rglob("*.yaml"))


def strip(spec):
    """Return what a spec declares without variables, and without the sign that a call was written as an expression."""
    ops = {
        name: op.model_copy(update={"expr": None}) if isinstance(op, CallOp | LossOp) else op
        for name, op in spec.ops.items()
    }
    return spec.model_copy(update={"vars": {}, "ops": ops})


def declare():
    g = Graph("small")
    x, y = g.input("x", ["batch", 2]), g.input("y", ["batch", 2])
    return g, x, y


def read(ops, more=""):
    """Return the spec of a document with inputs x and y and a model net."""
    head = "graphspec: 1\nname: small\ninputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 2]}}\n"
    return load(f"{head}{more}\nops:\n" + "".join(f"  {each}\n" for each in ops))


def test_the_library_is_that_of_the_tables():
    for path, text in write_all().items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m tests.graphspec.functions`"


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_in_python_is_that_in_yaml(path, monkeypatch, capsys):
    twin = path.with_name(f"{path.stem.replace('-', '_')}.py")
    assert twin.is_file(), f"declare {path.name} in Python, too, in {twin.name}"
    monkeypatch.syspath_prepend(twin.parent)
    spec = runpy.run_path(str(twin), run_name="__main__")["declare"]()
    assert strip(spec) == strip(load(path))
    text = dump(spec)
    assert capsys.readouterr().out == text == dump(load(text))


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/autoencoder/*.yaml")), ids=lambda path: path.stem)
def test_updates_are_listed_in_python_as_in_yaml(path):
    spec = runpy.run_path(str(path.with_name(f"{path.stem.replace('-', '_')}.py")))["declare"]()
    assert list(spec.ops) == list(load(path).ops)


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", [*EXAMPLES, *VALID], ids=lambda path: path.stem)
def test_every_document_can_be_declared(path):
    spec = load(dump(load(path)))
    assert Rebuilder(spec).run() == spec


EXPRESSIONS = (
    "x + y",
    "1.5 - x - y",
    "x - (y - 2)",
    "2 * x / y",
    "(-x) ** 2",
    "2 ** x",
    "1 / x + 1e-6",
    "where((x > 0) & ~(x <= y) | (x == y), x, 0.1)",
    "where(x != 1, x, y)",
    "where((x >= 1) & (y < 1), x, y)",
    "x[:, 0] + y[:, 1:]",
    "x[:, None] * abs(y)[:, ::2]",
    "clip(mean(x, axis=[0, 1]) + 1, min=-0.5)",
    "x @ y[0] + mse(x, y, reduction='none')",
    "stop(x) * max(y, keepdims=True)",
    "cross_entropy(x + 1, y, label_smoothing=0.1) * cosine(x * 2, y)",
    "concat(x, y + 1, x)[:, 0]",
    "reshape(x + y, shape=['batch', -1])",
)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_python_means_what_an_expression_does(text):
    g, x, y = declare()
    names = {name: getattr(library, name) for name in library.__all__}
    spec = g.build(outputs=g.expr(eval(text, {**names, "x": x, "y": y}), name="out"))
    assert spec == read([f'out: {{expr: "{text}"}}'], "outputs: out")


def test_what_is_used_once_is_a_part_and_what_has_a_name_or_is_used_twice_is_an_op():
    g, x, y = declare()
    net = g.model("net", layers=[{"linear": 2}], optimizer=adam())
    out = net(x)
    gap = out - y
    step = g.update(net, loss=mean(gap**2) + mean(twice(out * y)))
    hits = metrics.accuracy(out, y)
    spec = g.build(outputs=[step.loss, hits])
    assert spec == read(
        [
            "out: {forward: net, inputs: x}",
            'gap: {expr: "out - y"}',
            'expr_1: {expr: "out * y"}',
            'step: {update: net, loss: "mean(gap**2) + mean(expr_1 * expr_1)"}',
            "hits: {metric: accuracy, inputs: [out, y]}",
        ],
        "models: {net: {layers: [{linear: 2}], optimizer: adam}}\noutputs: [step.loss, hits]",
    )


def twice(value):
    return value * value


def test_names_come_from_assignments_or_are_numbered():
    g, x, y = declare()
    net = g.model(layers=[{"linear": 2}], optimizer="adam")
    for _ in range(2):
        out = net(x)
    first, second = split(out, sections=2)
    _ = g.update(net, loss=mse(first, second))
    g.update(net, loss=mse(out, y), after="update_1")
    one, other = net(y), (named := net(x))
    assert named is other
    assert list(g.build(outputs=[one, other]).ops) == [
        *("out", "out_2", "call_1", "update_1.loss", "update_1", "update_2.loss", "update_2", "one", "named"),
    ]


def test_names_and_places_do_not_depend_on_how_a_call_is_written(tmp_path):
    path = tmp_path / "spread.py"
    path.write_text(SPREAD, encoding="utf-8")
    spec = runpy.run_path(str(path))["spec"]
    assert [*spec.inputs, *spec.models, *spec.ops] == ["x", "net", "call_1", "low", "high", "done.loss", "done"]
    assert spec.span("ops", "high").line == 12
    column = SPREAD.splitlines()[9].index("net(") + 1
    assert (spec.span("ops", "call_1").line, spec.span("ops", "low").column) == (9, column)
    loss = spec.span("ops", "done", "loss")
    assert SPREAD.splitlines()[loss.line - 1][loss.column - 1 : loss.end_column - 1] == '"mse(low, high)"'


SPREAD = """\
from graphspec import Graph
from graphspec.library import adam
g = Graph("spread")
x = g.input(
    shape=["batch", 2],
)
net: object = g.model(layers=["relu", {"linear": 2}],
                      optimizer=adam())
wörter = g.call("mine:fn", x, name=None, doc="äöü 漢字")
doc = "äöü 漢字"; low = net(wörter)
high = (
    net
    (
        x
    )
)
text = "漢字"; done = g.update(net, loss="mse(low, high)")
spec = g.build(outputs=[done.loss])
"""


def test_without_a_file_names_are_numbered_and_messages_have_lines():
    code = """
from graphspec import Graph
g = Graph("nowhere")
x = g.input("x", [2])
net = g.model("net", layers=["reluu"])
out = net(x)
total = out + "missing" if False else g.expr("out_1 + missing")
spec = g.build()
"""
    with pytest.raises(SpecError) as raised:
        exec(compile(code, "<typed>", "exec"), {})
    (found,) = [each for each in raised.value.diagnostics if each.code == "GS048" or "reluu" in each.message]
    assert (found.span.file, found.span.line) == ("<typed>", 5)
    code = code.replace("reluu", "relu").replace("out_1 + missing", "forward_1 + 1")
    names = {}
    exec(compile(code, "<typed>", "exec"), names)
    assert list(names["spec"].ops) == ["forward_1", "expr_1"]


FILE = """\
from graphspec import Graph
from graphspec.library import adam, mean, mse

g = Graph("wrong", seed=1)
x, y = g.input("x", ["batch", 2]), g.input("y", ["batch", 2])
net = g.model("net", layers=[{"linear": 2}, "tanh"], optimizer=adam(1e-3, eps=1e-8))
out = net(x, mode="train")
goal = 0.5 * mean(out - y) + y
step = g.update(net, loss=mse(net(x), goal), every=2)
spec = g.build(outputs=[goal], run={"steps": 10})
"""
WRONG = {
    '"tanh"]': ('"tanhh"]', 6, '"tanhh"'),
    "eps=1e-8": ("eps=-1.0", 6, "-1.0"),
    'mode="train"': ('mode="evil"', 7, '"evil"'),
    "every=2": ('every="net"', 9, '"net"'),
    "every=2)": ("every=2, clip={'norm': -1})", 9, "-1"),
    "[goal]": ('[goal, "gaol"]', 10, '"gaol"'),
    '"steps": 10': ('"step": 10', 10, '"step"'),
    "seed=1": ('seed="one"', 4, '"one"'),
    "mean(out - y)": ("mean(out - y, axis=5)", 8, "5"),
    '["batch", 2]), g': ('["batch", 0]), g', 5, "0"),
}


@pytest.mark.parametrize("before", WRONG)
def test_messages_point_at_python(before, tmp_path):
    after, line, marked = WRONG[before]
    path = tmp_path / "wrong.py"
    path.write_text(FILE.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        compile_step(runpy.run_path(str(path))["spec"])
    span = raised.value.diagnostics[0].span
    assert (span.file, span.line) == (str(path), line)
    assert path.read_text(encoding="utf-8").splitlines()[line - 1][span.column - 1 : span.end_column - 1] == marked
    assert f"{path}:{line}:" in str(raised.value)
    assert marked in str(raised.value)


def test_a_name_that_is_taken_is_an_error_with_both_lines():
    g, x, _ = declare()
    net = g.model("net", layers=[{"linear": 2}])
    with pytest.raises(SpecError, match=r"first declared at [^\n]*test_graph.py:\d+:\d+[^$]*rename one of them"):
        net(x, name="x")
    out = net(x)
    second = net(x, name="out")  # a name that is given comes before one that is assigned
    assert list(g.build(outputs=[out, second]).ops) == ["out_2", "out"]


def test_values_of_another_graph_are_refused():
    _, x, _ = declare()
    g, own, _ = declare()
    net = g.model("net", layers=[{"linear": 2}])
    for declare_wrong in (
        lambda: net(x),
        lambda: own + x,
        lambda: mse(own, x),
        lambda: g.normal("z", like=x),
        lambda: g.update([net], loss=x),
        lambda: g.call("mine:fn", x),
        lambda: g.expr(x + 1),
        lambda: g.build(outputs=[x]),
        lambda: g.model("late", like=Graph("third").model("net", layers=["relu"])),
    ):
        with pytest.raises(ArgumentError, match="is of another graph"):
            declare_wrong()


def test_what_is_no_value_is_refused_with_a_remedy():
    g, x, y = declare()
    net = g.model("net", layers=[{"linear": 2}])
    endless = []
    endless.append(endless)
    for wrong, message in (
        (lambda: x if x > 0 else y, "where"),
        (lambda: min(x, y), "minimum"),
        (lambda: 0 < x < 1, "&"),
        (lambda: list(x), "outputs=2"),
        (lambda: float(x), "no number"),
        (lambda: x + "y", "found a str"),
        (lambda: x + np.ones(2), "found a ndarray"),
        (lambda: concat([x, y]), "one by one"),
        (lambda: net + x, "call it"),
        (lambda: mse(1.0, 2.0), "at least one value"),
        (lambda: clip(x, min=y), "is a constant"),
        (lambda: x[:, y], "gather"),
        (lambda: x[x > 0], "where(mask"),
        (lambda: net(x, keywords={"x": x}), "by position and by name"),
        (lambda: g.model("m", layers=endless), "contain itself"),
        (lambda: g.expr(g.expr(x + 1)), "op already"),
        (lambda: g.input(3), "a name is a text"),
        (lambda: g.build(run={"steps": {1}}), "cannot hold a set"),
    ):
        with pytest.raises(TypeError) as raised:
            wrong()
        assert isinstance(raised.value, ArgumentError)
        assert message in str(raised.value)
        assert "test_graph.py" in str(raised.value)
    assert len({x, y, x}) == 2
    with pytest.raises(ArgumentError, match="found a float32"):
        np.float32(2.0) * x


def test_numbers_of_numpy_are_numbers():
    g, x, _ = declare()
    spec = g.build(outputs=g.expr(np.float64(0.5) * x, name="out"))
    assert spec == read(['out: {expr: "0.5 * x"}'], "outputs: out")


def test_long_sums_are_cut_and_mean_the_same():
    g, x, y = declare()
    total = sum(x * number for number in range(1, 301))
    spec = g.build(outputs=g.expr(total + y, name="out"))
    assert 5 < len({op.expr for op in spec.ops.values()}) < 30
    step = build(compile_step(spec))
    one = np.ones((1, 2), dtype=np.float32)
    np.testing.assert_allclose(step({"x": one, "y": one}, mode="eval")["out"], [[45151.0, 45151.0]])


def test_what_an_expression_cannot_hold_is_an_op():
    g, x, y = declare()
    slow = schedule("linear", from_=0.9, to=0, over="100 steps")
    blurred = lerp(x, y * 2, slow)
    weighed = mse(blurred, y, weight=0.1, mode="train")
    spec = g.build(outputs=[weighed])
    assert spec == read(
        [
            'expr_1: {expr: "y * 2"}',
            "blurred: {call: lerp, inputs: [x, expr_1, {schedule: linear, from: 0.9, to: 0, over: 100 steps}]}",
            "weighed: {loss: mse, inputs: [blurred, y], weight: 0.1, mode: train}",
        ],
        "outputs: weighed",
    )


def test_functions_of_ones_own_and_several_results():
    g, x, y = declare()
    net = g.model("net", class_="zoo:Net", args={"width": 3}, optimizer=adam())
    low, high = net(x, outputs=2)
    inner, tapped = net(y, outputs=["inner", {"tapped": {"tap": "first.0"}}], method="encode")
    one, two = g.call("mine:both", low, keywords=None, axis=1, outputs=2, mode="train")
    slopes, slope = g.gradient(mse(one, high), [x, net])
    short = transforms.clip_norm(slopes, norm=1.0)
    g.update(net, gradients=short, name="step")
    mine = g.loss("mine:loss", inner, tapped, reduction="sum", gamma=2.0)
    seen = g.metric("mine:Seen", two, reset="step", args={"mode": "max"})
    spec = g.build(outputs=[mine, seen, slope])
    assert spec == read(
        [
            "forward_1: {forward: net, inputs: x, outputs: [low, high]}",
            "forward_2: {forward: net, inputs: y, outputs: [inner, {tapped: {tap: first.0}}], method: encode}",
            'call_1: {call: "mine:both", inputs: low, args: {axis: 1}, outputs: [one, two], mode: train}',
            'gradient_1: {gradient: "mse(one, high)", wrt: [x, net], outputs: [slopes, slope]}',
            "short: {transform: clip_norm, inputs: slopes, args: {norm: 1.0}}",
            "step: {update: net, gradients: short}",
            'mine: {loss: "mine:loss", inputs: [inner, tapped], reduction: sum, args: {gamma: 2.0}}',
            'seen: {metric: "mine:Seen", inputs: two, reset: step, args: {mode: max}}',
        ],
        'models: {net: {class: "zoo:Net", args: {width: 3}, optimizer: adam}}\noutputs: [mine, seen, slope]',
    )


def test_a_scope_is_a_use_of_a_block():
    g, x, y = declare()
    net = g.model("net", layers=[{"linear": 2}], optimizer=adam())

    def judge(x, goal):
        out = net(x)
        return out, mean((out - goal) ** 2)

    with g.scope("first"):
        out, gap = judge(x, y)
    step = g.update(net, loss=gap)
    with g.scope("second", after=step, mode="train"):
        late, gap = judge(x, out)
        with g.repeat("passes", 2):
            g.update(net, loss=mse(net(x), late), after=late, name="on")
    with g.scope("third", mode="train"):
        with g.scope("inner"):
            part = [x * 2]  # inside it is a part of the sum
        total = part[0] + 1
    told = g.expr(1 - gap)
    spec = g.build(outputs=[step.loss, told, total])
    assert spec == read(
        [
            "first.out: {forward: net, inputs: x}",
            'step: {update: net, loss: "mean((first.out - y) ** 2)"}',
            "second: {use: judge, inputs: [x, first.out], after: step, mode: train}",
            "second.passes: {repeat: 2, after: step, mode: train, ops: {forward_1: {forward: net, inputs: x}, "
            'on: {update: net, loss: "mse(forward_1, second.out)", after: second.out}}}',
            'third.total: {expr: "x * 2 + 1", mode: train}',
            'told: {expr: "1 - second.call_1"}',
        ],
        "models: {net: {layers: [{linear: 2}], optimizer: adam}}\noutputs: [step.loss, told, third.total]\n"
        "blocks: {judge: {inputs: [x, goal], outputs: [out, call_1], ops: {out: {forward: net, inputs: x}, "
        'call_1: {expr: "mean((out - goal) ** 2)"}}}}',
    )


def test_what_is_wrong_with_a_scope_is_told_at_its_line():
    g, x, _ = declare()
    with g.scope("late", mode="train", after="stepp"):
        out = g.expr(-x)
    with pytest.raises(SpecError, match=r"(?s)'stepp', which is not declared.*g\.scope\(\"late\""):
        g.build(outputs=[out])
    with g.scope("later", mode="train"):
        g.expr(-x, mode="eval", name="other")
    with pytest.raises(ArgumentError, match=r"holds for all its ops, but 'later\.other' has its own"):
        g.build(outputs=[out])


def test_an_option_that_is_left_out_has_the_default_of_compat():
    g = Graph("compat", compat="tf_keras")
    x = g.input("x", ["batch", 2])
    net = g.model("net", layers=[{"linear": 2}], optimizer=adam())
    g.update(net, loss=mean(net(x)))
    assert g.build().models["net"].optimizer.options["eps"] == 1e-7


def test_graphs_are_declared_in_threads():
    found = []

    def work(number):
        g, x, y = declare()
        for _ in range(30):
            out = x * number + y
        found.append((number, g.build(outputs=out)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for number, spec in found:
        assert len(spec.ops) == 60
        assert all(op.inputs.positional[1] == number for name, op in spec.ops.items() if op.call.torch == "mul")


def test_no_frame_is_kept():
    class Big:
        pass

    def work():
        big = Big()
        kept = weakref.ref(big)
        g, x, y = declare()
        out = x + y
        return g, g.build(outputs=out), kept

    g, spec, kept = work()
    assert kept() is None
    assert (repr(g), list(spec.ops)) == ("<graph 'small'>", ["out"])
