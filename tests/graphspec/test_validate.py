"""Every rule finds what breaks it, at the place where it is broken, and says what was probably meant."""

from __future__ import annotations

import pytest

OPS = {
    "GS101": [
        ("«net»: {call: relu, inputs: x}", "as a model (line 7) and as an op", ""),
        ("a: {forward: other, inputs: x, outputs: [«y», b]}", "as an input (line 5) and as a value of op 'a'", ""),
    ],
    "GS102": [
        ("«1a»: {call: relu, inputs: x}", "is not a name", ""),
        ("«lambda»: {call: relu, inputs: x}", "is a Python keyword", ""),
        ("a: {forward: other, inputs: x, outputs: [«b c», d]}", "is not a name", ""),
    ],
    "GS103": [
        ("a: {forward: «nett», inputs: x}", "`forward` of op 'a' names 'nett'", "did you mean 'net' (line 7)?"),
        ("a: {update: [other, «nest»], loss: err}", "`update` of op 'a'", "did you mean 'net' (line 7)?"),
        ("a: {ema: «oter», decay: 0.9}", "`ema` of op 'a'", "did you mean 'other' (line 8)?"),
        ("a: {ema: net, into: «zzz», decay: 0.9}", "`into` of op 'a'", ""),
        ("a: {copy: «nets», into: other}", "`copy` of op 'a'", "did you mean 'net' (line 7)?"),
    ],
    "GS104": [
        ("a: {call: add, inputs: [out, «outt»]}", "`inputs` of op 'a' names 'outt'", "did you mean 'out' (line 10)?"),
        ("a: {forward: other, inputs: {image: «xx»}}", "`inputs` of op 'a'", ""),
        ("a: {update: net, loss: «er»}", "`loss` of op 'a'", "did you mean 'err' (line 11)?"),
        ("a: {gradient: err, wrt: [net, «zz»], outputs: [p, q]}", "expected a model or a value", ""),
        ("a: {random: normal, like: «zz»}", "`like` of op 'a'", ""),
    ],
    "GS105": [
        ("a: {forward: net, inputs: x, after: [fit, «fti»]}", "`after` of op 'a'", "did you mean 'fit' (line 12)?"),
        ("a: {ema: net, decay: 0.9, every: «fitt»}", "expected an update", "did you mean 'fit' (line 12)?"),
    ],
    "GS106": [
        ("a: {call: relu, inputs: «net»}", "must name a value, found 'net', a model (line 7)", ""),
        ("a: {call: relu, inputs: «fit»}", "an update, which has no value", "did you mean its loss 'err'?"),
        ("a: {update: «out», loss: err}", "must name a model, found 'out'", "did you mean its model 'net'?"),
        ("a: {call: relu, inputs: x, every: «err»}", "must name an update", ""),
        ("a: {call: relu, inputs: x, after: «x»}", "must name an op, found 'x', an input", ""),
    ],
    "GS109": [
        ("a: {update: [net, «net»], loss: err}", "`update` of op 'a' lists 'net' twice", ""),
        ("a: {call: relu, inputs: x, after: [fit, «fit»]}", "`after` of op 'a'", ""),
    ],
    "GS110": [
        ("a: {loss: «cross_entropi», inputs: [out, y]}", "no loss is named", "did you mean 'cross_entropy'?"),
        ("a: {call: «mse», inputs: [out, out]}", "no call is named", "'mse' is a loss: did you mean `loss: mse`?"),
        ("a: {call: «my.fn», inputs: out}", "no call is named", "did you mean 'my:fn'?"),
        ("a: {metric: «acuracy», inputs: [out, y]}", "no metric is named", "did you mean 'accuracy'?"),
    ],
    "GS111": [
        ("a: {call: matmul, inputs: «[out]»}", "takes 2 inputs (a, b), found 1", ""),
        ("«a»: {loss: mse}", "takes 2 inputs (prediction, target), found 0", ""),
        ("a: {call: concat, «inputs»: []}", "takes 1 input or more (x), found 0", ""),
        ("a: {metric: accuracy, inputs: «{scores: out, target: y}»}", "by position", ""),
        ("a: {forward: net, inputs: «[x, x]»}", "model 'net' (layers) takes 1 input, found 2", ""),
        ("a: {forward: net, inputs: «{image: x}»}", "takes 1 input by position, found a mapping", ""),
    ],
    "GS108": [
        ("a: {ema: «a», decay: 0.9}", "op 'a' averages itself", ""),
        ("a: {adapt: «a», loss: err, lr: 0.1}", "op 'a' adapts itself", ""),
    ],
    "GS112": [
        ("a: {call: clip, inputs: out, args: {«mn»: 1}}", "no option 'mn'", "did you mean 'min'?"),
        ("a: {loss: mse, inputs: [out, out], args: {«axis»: 1}}", "no option 'axis'", ""),
        ("a: {random: normal, shape: [batch], args: {«sd»: 1}}", "no option 'sd'", "did you mean 'std'?"),
    ],
    "GS113": [
        ("a: {call: clip, inputs: out, args: {max: «high»}}", "expected a number, found the string 'high'", ""),
        ("a: {call: mean, inputs: out, args: {keepdims: «1»}}", "expected true or false, found the number 1", ""),
        ("a: {random: bernoulli, shape: [batch], args: {p: «1.5»}}", "expected a number from 0 to 1", ""),
    ],
    "GS114": [
        ("«a»: {call: one_hot, inputs: y}", "needs `classes`", ""),
        ("a: {random: randint, shape: [batch], «args»: {low: 1}}", "needs `high`", ""),
    ],
    "GS116": [
        ("«a»: {call: split, inputs: out, args: {sections: 2}}", "has 2 results, which need names", ""),
        ("a: {call: split, inputs: x, args: {sections: [3, 5]}, «outputs»: [p]}", "has 2 results and 1 name", ""),
        ("a: {call: relu, inputs: x, «outputs»: [p, q]}", "has 1 result and 2 names", ""),
        ("«a»: {gradient: err, wrt: [net, x]}", "has 2 results", ""),
        ("a: {forward: net, inputs: x, «outputs»: [p, q]}", "has 1 result", ""),
    ],
    "GS118": [
        ("a: {update: net, loss: «out»}", "found the value of a `forward` op", ""),
        ("a: {update: net, loss: «x»}", "found an input", ""),
        ("a: {gradient: «out», wrt: x}", "found the value of a `forward` op", ""),
    ],
    "GS120": [("a: {update: net, loss: err, start: 9, until: «4 steps»}", "never runs", "")],
    "GS121": [
        ("a: {random: normal, shape: [«bach», 3]}", "which no input has", "did you mean 'batch'?"),
        ("a: {random: permutation, shape: «[batch, 3]»}", "one size, found 2", ""),
    ],
}
MODELS = {
    "GS103": [
        ("m: {like: «nte»}", "`like` of model 'm' names 'nte'", "did you mean 'net' (line 7)?"),
        ("m: {class: a:B, traits: {ties: [«net»]}}", "a tie names a parameter of another model", ""),
        ("m: {class: a:B, traits: {ties: [net.0.weight, «nt.0.bias»]}}", "names 'nt'", "did you mean 'net' (line 7)?"),
    ],
    "GS106": [("m: {like: «out»}", "must name a model, found 'out'", "did you mean its model 'net'?")],
    "GS108": [("m: {like: «m»}", "model 'm' is like itself", "")],
    "GS112": [
        ("m: {layers: [{conv2d: {out: 3, kernel: 3, «strid»: 2}}]}", "no option 'strid'", "did you mean 'stride'?"),
        ("m: {layers: [{relu: «3»}]}", "has no options", ""),
        ("m: {class: a:B, optimizer: {name: adam, «momentum»: 0.9}}", "optimizer `adam` has no option", ""),
    ],
    "GS113": [
        ("m: {layers: [{linear: «'64'»}]}", "expected a whole number from 1 up, found the string '64'", ""),
        ("m: {layers: [{linear: «true»}]}", "expected a whole number from 1 up, found true", ""),
        ("m: {layers: [{max_pool: «[1, 2, 3]»}]}", "or two of them", ""),
        ("m: {layers: [{upsample: {factor: 2, mode: «cubic»}}]}", "expected one of nearest, bilinear", ""),
        ("m: {layers: [{elu: «0»}]}", "expected a number greater than 0", ""),
        ("m: {class: a:B, optimizer: {name: adam, betas: «[0.9, 1.0]»}}", "two numbers from 0 to less than 1", ""),
        ("m: {class: a:B, optimizer: {name: adam, fused: «maybe»}}", "expected auto, true or false", ""),
        ("m: {class: a:B, optimizer: {name: sgd, nesterov: «true»}}", "needs a momentum and no dampening", ""),
        (
            "m: {class: a:B, optimizer: {name: sgd, momentum: 0.9, momentum_form: lr_inside, dampening: «0.1»}}",
            "needs `momentum_form: lr_outside`",
            "",
        ),
        ("m: {class: a:B, optimizer: {name: sgd, dampening: «0.1»}}", "needs a momentum, and there is none", ""),
        (
            "m: {class: a:B, optimizer: {name: adam, betas: «{schedule: constant, value: 1}»}}",
            "`betas` of optimizer `adam` takes no schedule",
            "",
        ),
        (
            "m: {class: a:B, optimizer: {name: adagrad, initial_accumulator_value: «{schedule: constant, value: 1}»}}",
            "`initial_accumulator_value` of optimizer `adagrad` takes no schedule",
            "",
        ),
    ],
    "GS114": [
        ("m: {layers: [{«conv2d»: 3}]}", "layer `conv2d` needs `kernel`", ""),
        ("m: {layers: [«embedding»]}", "needs `count`", ""),
        ("m: {layers: [relu, «residual»]}", "needs a list of layers", ""),
    ],
    "GS115": [
        ("m: {layers: [«reluu»]}", "no layer is named 'reluu'", "did you mean 'relu'?"),
        ("m: {layers: [{residual: [relu, {«liner»: 3}]}]}", "no layer is named 'liner'", "did you mean 'linear'?"),
    ],
}


def _cases(table):
    return [(code, *case) for code, cases in table.items() for case in cases]


@pytest.mark.parametrize(("code", "line", "message", "label"), _cases(OPS))
def test_a_wrong_op_is_reported_where_it_is_wrong(small, find, code, line, message, label):
    found = find(small(ops=line))
    assert found.codes[:1] == (code,)
    assert found.places[:1] == found.marks
    assert message in found.diagnostics[0].message
    assert found.diagnostics[0].label.startswith(label)
    assert bool(label) <= bool(found.diagnostics[0].label)


@pytest.mark.parametrize(("code", "line", "message", "label"), _cases(MODELS))
def test_a_wrong_model_is_reported_where_it_is_wrong(small, find, code, line, message, label):
    found = find(small(models=line))
    assert found.codes[:1] == (code,)
    assert found.places[:1] == found.marks
    assert message in found.diagnostics[0].message
    assert found.diagnostics[0].label.startswith(label)


def test_the_small_spec_itself_has_no_problem(small, find):
    assert find(small()).diagnostics == ()


def test_an_update_of_a_model_without_optimizer_is_refused(small, find):
    found = find(small(models="bare: {layers: [relu]}", ops="a: {update: [net, «bare»], loss: err}"))
    assert found.codes == ("GS107",)
    assert found.places == found.marks
    assert "updates model 'bare' (line 9)" in found.diagnostics[0].message


def test_an_update_may_bring_the_optimizer_that_its_model_lacks(small, find):
    line = "a: {update: bare, loss: err, optimizer: adam}"
    assert find(small(models="bare: {layers: [relu]}", ops=line)).codes == ()


def test_a_likeness_has_no_optimizer_of_its_model(small, find):
    assert find(small(models="twin: {like: net}", ops="a: {update: «twin», loss: err}")).codes == ("GS107",)


def test_a_circle_of_likenesses_is_reported_once(small, find):
    found = find(small(models="a: {like: «b»}\nb: {like: c}\nc: {like: a}\nd: {like: a}"))
    assert found.codes == ("GS108",)
    assert found.places == found.marks
    assert found.diagnostics[0].message.endswith("through 'b', 'c'")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("b: {ema: «a», decay: 0.9}", "a: {ema: b, decay: 0.9}"),
        ("b: {adapt: «a», loss: err, lr: 0.1}", "a: {adapt: b, loss: err, lr: 0.1}"),
    ],
)
def test_a_circle_of_averages_or_derived_models_is_reported_once(small, find, one, other):
    found = find(small(ops=f"{one}\n{other}"))
    assert found.codes == ("GS108",)
    assert found.places == found.marks
    assert found.diagnostics[0].message.endswith("s itself through 'a'")


def test_a_likeness_of_a_likeness_is_allowed(small, find):
    assert find(small(models="a: {like: b}\nb: {like: net}")).codes == ()


def test_the_average_of_an_ema_is_a_model_to_call_and_no_value(small, find):
    ops = "avg: {ema: net, decay: 0.9}\na: {forward: avg, inputs: x}\nb: {call: relu, inputs: «avg»}"
    found = find(small(ops=ops))
    assert found.codes == ("GS106",)
    assert found.places == found.marks
    assert "the average kept by an ema" in found.diagnostics[0].message


def test_an_op_with_outputs_has_no_value_of_its_own_name(small, find):
    ops = "a: {forward: other, inputs: x, outputs: [mu, sigma]}\nb: {call: relu, inputs: «a»}"
    found = find(small(ops=ops))
    assert found.codes == ("GS106",)
    assert found.diagnostics[0].label == "did you mean its output 'mu'?"


def test_a_value_is_no_op_to_come_after(small, find):
    ops = "a: {forward: other, inputs: x, outputs: [mu, sigma]}\nb: {call: relu, inputs: x, after: «mu»}"
    found = find(small(ops=ops))
    assert found.codes == ("GS106",)
    assert found.diagnostics[0].label == "did you mean its op 'a'?"


def test_outputs_of_the_document_name_values_once(small, find):
    found = find(small(more="outputs: [err, «errr», «net», «err»]\n"))
    assert found.codes == ("GS104", "GS106", "GS109")
    assert found.places == found.marks


def test_images_of_the_run_are_a_value(small, find):
    found = find(small(more="run: {steps: 3, images: {value: «pictures»}}\n"))
    assert found.codes == ("GS104",)
    assert found.places == found.marks


def test_all_problems_come_at_once_in_the_order_of_the_text(small, find):
    ops = "a: {forward: «nett», inputs: [«z1»]}\nb: {loss: «msee», inputs: [out, «z2»]}\nc: {update: «out», loss: err}"
    found = find(small(ops=ops))
    assert found.codes == ("GS103", "GS104", "GS110", "GS104", "GS106")
    assert found.places == found.marks


def test_an_option_with_a_slip_in_its_name_is_not_missing_besides(small, find):
    found = find(small(models="m: {layers: [{conv2d: {out: 4, «kernal»: 3}}]}"))
    assert found.codes == ("GS112",)
    assert found.places == found.marks


def test_a_name_declared_twice_is_told_once_and_may_be_used_as_either(small, find):
    found = find(small(ops="«net»: {call: relu, inputs: x}\na: {forward: net, inputs: net, outputs: [b]}"))
    assert found.codes == ("GS101",)
    assert found.places == found.marks


def test_what_is_wrong_in_a_list_of_sizes_is_named(small, find):
    found = find(small(ops="a: {call: reshape, inputs: x, args: {shape: «[4, batch]»}}"))
    assert found.codes == ("GS113",)
    assert "found the string 'batch' in a list" in found.diagnostics[0].message


def test_a_user_function_is_not_held_to_any_table(small, find):
    ops = "a: {call: my.mod:fn, inputs: {p: x, q: out}, args: {anything: [1, {deep: true}]}, outputs: [b, c]}"
    assert find(small(ops=ops)).codes == ()


def test_a_random_size_may_come_from_any_input(small, find):
    text = small(ops="a: {random: normal, shape: [batch, time]}").replace("[batch, 8]", "[batch, time]")
    assert find(text).codes == ()


def test_an_input_without_shape_may_give_the_batch_but_no_other_size(find):
    text = "graphspec: 1\nname: t\ninputs: {x: {}}\nops:\n  a: {random: normal, shape: [batch]}\n"
    assert find(text).codes == ()
    assert find(text.replace("[batch]", "[time]")).codes == ("GS121",)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ("forward: dense, inputs: x, outputs: [y, «{h: {tap: 4}}»]", "model 'dense' has no layer '4'"),
        ("forward: alike, inputs: x, outputs: [y, «{h: {tap: '1.1'}}»]", "model 'alike' has no layer '1.1'"),
        ("forward: mean, inputs: x, outputs: [«{h: {tap: relu}}»]", "model 'mean' has no layer 'relu'"),
        ("forward: scale, outputs: [y, «{h: {tap: 0}}»]", "model 'scale' has no layer '0'"),
        ("forward: alike, inputs: x, outputs: [y, {h: {tap: '1.0'}}]", ""),
    ],
)
def test_a_tapped_layer_is_there(find, forward, message):
    text = f"""
graphspec: 1
name: tapped
inputs: {{x: {{shape: [batch, 3]}}}}
models:
  dense: {{layers: [{{linear: 3}}, {{residual: [relu]}}], optimizer: sgd}}
  alike: {{like: dense}}
  scale: {{parameter: {{shape: [3]}}}}
ops:
  mean: {{ema: dense, decay: 0.9}}
  a: {{{forward}}}
  b: {{call: sum, inputs: h}}
outputs: [b]
"""
    found = find(text)
    assert found.codes == (("GS115",) if message else ())
    assert found.places == found.marks
    assert message in "".join(each.message for each in found.diagnostics)
