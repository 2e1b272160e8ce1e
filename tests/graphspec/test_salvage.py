"""A document with wrong fields is still held to the rules, and nothing is held against what could not be read."""

from __future__ import annotations


def test_a_wrong_field_does_not_hide_a_wrong_reference_elsewhere(small, find):
    found = find(small(ops="a: {forward: net, inputs: x, «trian»: true}\nb: {update: «nett», loss: err}"))
    assert found.codes == ("GS040", "GS103")
    assert found.places == found.marks


def test_a_wrong_field_does_not_hide_a_wrong_reference_beside_it(small, find):
    found = find(small(ops="a: {forward: «nett», inputs: «z», «trian»: true}"))
    assert found.codes == ("GS103", "GS104", "GS040")
    assert found.places == found.marks


def test_values_of_a_malformed_op_are_not_called_undeclared(small, find):
    ops = "a: {forward: other, inputs: x, outputs: [mu, {h: {tap: l}}], «trian»: true}\nb: {call: add, inputs: [mu, h]}"
    assert find(small(ops=ops)).codes == ("GS040",)


def test_a_kindless_op_is_not_called_undeclared(small, find):
    assert find(small(ops="a: {«foward»: net}\nb: {call: relu, inputs: a}")).codes == ("GS051",)


def test_a_malformed_model_is_not_called_undeclared_or_without_optimizer(small, find):
    models = "«m»: {class: a:B, layers: [relu]}\nn: {like: m, optimizer: «adm»}"
    ops = "a: {forward: m, inputs: x}\nb: {update: [m, n], loss: err}\nc: {gradient: err, wrt: m}"
    assert find(small(models=models, ops=f"{ops}\nd: {{update: m, gradients: c}}")).codes == ("GS053", "GS043")


def test_a_malformed_input_is_not_called_undeclared(small, find):
    text = small(ops="a: {random: normal, shape: [batch]}").replace("dtype: int64", "dtype: «int»")
    assert find(text).codes == ("GS043",)


def test_one_wrong_layer_does_not_hide_another(small, find):
    models = "m: {layers: [«3», {«lineer»: 4}, {residual: [«7», {«rellu»: {}}]}]}"
    found = find(small(models=models))
    assert found.codes == ("GS055", "GS115", "GS055", "GS115")
    assert found.places == found.marks


def test_an_unreadable_section_makes_no_names_undeclared(find, small):
    text = small().replace("models:\n", "models: «3»\n«modles»:\n")
    found = find(text)
    assert found.codes == ("GS041", "GS040")
    assert found.places == found.marks


def test_wrong_top_level_fields_do_not_hide_what_is_wrong_below(small, find):
    text = small(ops="a: {forward: «nett», inputs: x}", more="«sed»: 3\n").replace("graphspec: 1", "graphspec: «2»")
    found = find(text)
    assert found.codes == ("GS043", "GS103", "GS040")
    assert found.places == found.marks


def test_a_wrong_run_key_does_not_hide_a_wrong_image(small, find):
    found = find(small(more="run: {«stpes»: 3, images: {value: «picture»}}\n"))
    assert found.codes == ("GS040", "GS104")
    assert found.places == found.marks
