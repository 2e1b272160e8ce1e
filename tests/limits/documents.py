"""Documents inside the limits (16 MB, 2 M nodes, depth 64) that ask for more time or memory than a check may take.

Each is a function without arguments that returns the text; its name says what grows in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

DOCUMENTS: dict[str, Callable[[], str]] = {}
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
"""Intervals whose common multiples are large."""


def document(make: Callable[[], str]) -> Callable[[], str]:
    """Add a document to the table."""
    DOCUMENTS[make.__name__] = make
    return make


def spec(**sections: object) -> str:
    """Return a spec of a small net with some sections in the place of its own, or beside them."""
    whole: dict[str, object] = {
        "graphspec": 1,
        "name": "large",
        "inputs": {"x": {"shape": ["batch", 4]}},
        "models": {"net": {"layers": [{"linear": 2}], "optimizer": "sgd"}},
        "ops": {
            "y": {"forward": "net", "inputs": "x"},
            "far": {"loss": "mse", "inputs": ["y", 0.0]},
            "fit": {"update": "net", "loss": "far"},
        },
    }
    for name, section in sections.items():
        own = whole.get(name)
        whole[name] = {**own, **section} if isinstance(own, dict) and isinstance(section, Mapping) else section
    return json.dumps(whole)


def net(**fields: object) -> dict[str, object]:
    """Return the small net with other fields beside its own."""
    return {"net": {"layers": [{"linear": 2}], "optimizer": "sgd", **fields}}


def numbered(count: int, make: Callable[[int], object], prefix: str = "n") -> dict[str, object]:
    """Return what is made of the numbers up to a count, under names."""
    return {f"{prefix}{number}": make(number) for number in range(count)}


def grouped(*patterns: str, layers: int = 1) -> str:
    """Return a spec whose net has groups with some patterns."""
    stack = [{"linear": 2} for _ in range(layers)]
    groups = [{"match": pattern, "lr_scale": 0.5} for pattern in patterns]
    return spec(models={"net": {"layers": stack, "optimizer": "sgd", "groups": groups}})


def averaged(count: int, use: Callable[[int], object] = lambda number: {"eval": "swap"}) -> str:
    """Return a spec with averages of several models that stand in for them in evaluation."""
    models = numbered(count, lambda _: {"layers": [{"linear": 2}], "optimizer": "sgd"}, "m")
    ops: dict[str, object] = {}
    for number in range(count):
        ops[f"y{number}"] = {"forward": f"m{number}", "inputs": "x"}
        ops[f"l{number}"] = {"loss": "mse", "inputs": [f"y{number}", 0.0]}
        ops[f"u{number}"] = {"update": f"m{number}", "loss": f"l{number}"}
        ops[f"e{number}"] = {"ema": f"m{number}", "decay": 0.9, "use": use(number)}
    return spec(models=models, ops=ops, outputs=[f"y{number}" for number in range(count)])


def updated(count: int, fields: Callable[[int], Mapping[str, object]], optimizer: object = "sgd") -> str:
    """Return a spec with several updates, each with fields of its own."""
    models = numbered(count, lambda _: {"layers": [{"linear": 2}], "optimizer": optimizer}, "m")
    ops: dict[str, object] = {}
    for number in range(count):
        ops[f"y{number}"] = {"forward": f"m{number}", "inputs": "x"}
        ops[f"l{number}"] = {"loss": "mse", "inputs": [f"y{number}", 0.0]}
        ops[f"u{number}"] = {"update": f"m{number}", "loss": f"l{number}", **fields(number)}
    return spec(models=models, ops=ops)


def chain(count: int, step: Callable[[str], object]) -> dict[str, object]:
    """Return ops of which each reads the one before."""
    names = ["x", *(f"c{number}" for number in range(count))]
    return {name: step(before) for before, name in pairwise(names)}


# Patterns.


@document
def pattern_of_optional_parts() -> str:
    return grouped("(?:.?){60}!")


@document
def pattern_of_nested_repeats() -> str:
    return grouped("(((a+)+)+)+$", "^(w|e|i|g|h|t|[a-z]|.)*!$", "(.*)*(.*)*(.*)*!")


@document
def pattern_of_counted_repeats() -> str:
    return grouped("((a{1,1000}){1,1000}){1,1000}")


@document
def pattern_of_a_megabyte() -> str:
    return grouped("(a|b)?" * 170_000)


@document
def patterns_by_parameters() -> str:
    return grouped(*(f"x{number}.*y.*z.*w" for number in range(300)), layers=300)


@document
def patterns_of_constraints_and_regularizers() -> str:
    lists = {name: [{**kind, "match": "(?:.?){60}!"} for _ in range(20)] for name, kind in KINDS.items()}
    return spec(models=net(**lists))


KINDS: Mapping[str, dict[str, object]] = {"constraint": {"clip": [-1, 1]}, "regularizer": {"l2": 0.1}}


# Functions: sets of ops that fire together.


@document
def swaps_10() -> str:
    return averaged(10)


@document
def swaps_40() -> str:
    return averaged(40)


@document
def swaps_with_starts() -> str:
    return averaged(12, lambda number: {"eval": "swap"}).replace('"decay": 0.9', '"decay": 0.9, "start": 7')


@document
def starts_with_a_long_period() -> str:
    return updated(20, lambda number: {"start": 1 + 997 * number, "every": 99_991})


@document
def starts_apart() -> str:
    return updated(40, lambda number: {"start": 1 + 1_000 * number})


@document
def intervals_that_rarely_meet() -> str:
    return updated(len(PRIMES), lambda number: {"every": PRIMES[number]})


@document
def intervals_of_six_updates() -> str:
    return updated(6, lambda number: {"every": PRIMES[number]})


@document
def windows_of_many_lengths() -> str:
    return updated(12, lambda number: {"accumulate": PRIMES[number]})


@document
def enormous_intervals() -> str:
    return updated(3, lambda number: {"every": 10**17 + number, "start": 10**17})


@document
def an_enormous_window() -> str:
    return updated(2, lambda number: {"accumulate": 10**15 + number})


@document
def clocks_of_clocks() -> str:
    return updated(60, lambda number: {"every": f"u{number - 1}"} if number else {"every": 2})


@document
def optimizers_by_hundreds_of_epochs() -> str:
    return updated(3, lambda number: {}, {str(1 + epoch): "sgd" for epoch in range(300)})


@document
def groups_that_thaw_one_by_one() -> str:
    groups = [{"match": f"^{number}[.]", "frozen": {"until": f"{10 + number} steps"}} for number in range(40)]
    return spec(models={"net": {"layers": [{"linear": 2}] * 40, "optimizer": "sgd", "groups": groups}})


@document
def groups_that_thaw_in_many_models() -> str:
    frozen = [{"match": "weight", "frozen": {"until": "10 steps"}}]
    plain = json.loads(updated(24, lambda number: {"every": PRIMES[number % 4]}))
    for model in plain["models"].values():
        if model["layers"] != [{"linear": 1}]:
            model["groups"] = frozen
    return json.dumps(plain)


@document
def data_sets_by_hundreds() -> str:
    names = [f"d{number}" for number in range(300)]
    plain = json.loads(updated(300, lambda number: {"dataset": names[number]}))
    plain["data"] = {"train": {name: {"source": "npz", "path": f"{name}.npz", "batch": 8} for name in names}}
    return json.dumps(plain)


@document
def micro_batches_by_millions() -> str:
    return spec(micro_batches=1_000_000)


@document
def micro_batches_by_hundreds() -> str:
    return spec(micro_batches=500)


# References, suggestions, messages.


@document
def outputs_repeated() -> str:
    return spec(outputs=["y"] * 200_000)


@document
def variables_unknown() -> str:
    return spec(vars=numbered(3_000, int, "variable_"), doc_=None).replace(
        '"large"', json.dumps("".join(f"${{varable_{number}}}" for number in range(3_000)))
    )


@document
def variables_unknown_and_long() -> str:
    return spec(name="".join(f"${{{'a' * 5_000}{number}}}" for number in range(1_000)), vars={"a" * 5_001: 1})


@document
def variables_that_double() -> str:
    return spec(vars={"v0": "a" * 10, **{f"v{n}": f"${{v{n - 1}}}${{v{n - 1}}}" for n in range(1, 60)}}, name="${v59}")


@document
def lists_that_double() -> str:
    doubled = {f"v{n}": [f"${{v{n - 1}}}", f"${{v{n - 1}}}"] for n in range(1, 60)}
    return spec(vars={"v0": [1, 2], **doubled}, outputs="${v59}")


@document
def variables_in_a_chain() -> str:
    return spec(vars={"v0": 1, **{f"v{n}": f"${{v{n - 1}}}" for n in range(1, 30_000)}})


@document
def variables_in_a_circle() -> str:
    return spec(vars={f"v{n}": f"${{v{(n + 1) % 20_000}}}" for n in range(20_000)})


@document
def a_long_variable_used_often() -> str:
    return spec(vars={"v": "a" * 100_000}, outputs=["${v}"] * 150)


@document
def keys_unknown() -> str:
    return spec(**numbered(20_000, int, "key_of_the_document_"))


@document
def keys_unknown_and_long() -> str:
    return spec(**numbered(2_000, int, "k" * 5_000))


@document
def keys_unknown_in_ops() -> str:
    return spec(ops=numbered(3_000, lambda number: {"call": "neg", "inputs": "x", "inptus": 1, "oututs": 2}))


@document
def ops_of_no_kind() -> str:
    return spec(ops=numbered(10_000, lambda number: {"forwrd": "net", "inputs": "x"}))


@document
def models_of_no_kind() -> str:
    return spec(models=numbered(10_000, lambda number: {"layer": 1}))


@document
def values_of_the_wrong_type() -> str:
    return spec(ops=numbered(10_000, lambda number: [number]), models=numbered(10_000, lambda number: number))


@document
def references_unknown() -> str:
    return spec(ops=numbered(4_000, lambda number: {"call": "neg", "inputs": f"nobody{number}"}))


@document
def references_unknown_and_long() -> str:
    return spec(ops=numbered(1_500, lambda number: {"call": "neg", "inputs": f"{number}{'n' * 5_000}"}))


@document
def references_of_a_megabyte() -> str:
    return spec(ops=numbered(14, lambda number: {"call": "neg", "inputs": f"{number}" + "n" * 1_000_000}))


@document
def names_of_a_megabyte() -> str:
    return spec(ops={f"{'n' * 1_000_000}{number}": {"call": "neg", "inputs": "z"} for number in range(14)})


@document
def names_that_are_none() -> str:
    return spec(inputs=numbered(20_000, lambda _: {"shape": ["batch", 4]}, "x-"))


@document
def names_declared_twice() -> str:
    return spec(ops=numbered(4_000, lambda number: {"call": "split", "inputs": "x", "outputs": ["y", "z"]}))


@document
def functions_unknown() -> str:
    return spec(ops=numbered(5_000, lambda number: {"call": f"sigmoyd{number}", "inputs": "x"}))


@document
def options_unknown() -> str:
    options = numbered(20_000, int, "momentun")
    return spec(models=net(optimizer={"name": "sgd", **options}))


@document
def arguments_that_are_no_names() -> str:
    return spec(ops={"z": {"call": "zoo:f", "inputs": "x", "args": numbered(20_000, int, "a b")}})


@document
def layers_unknown() -> str:
    return spec(models={"net": {"layers": [{"linaer": 2}] * 20_000, "optimizer": "sgd"}})


@document
def layers_with_unknown_options() -> str:
    return spec(models={"net": {"layers": [{"linear": {"out": 2, "baias": 1}}] * 10_000, "optimizer": "sgd"}})


@document
def modes_unknown() -> str:
    return spec(ops={"z": {"call": "neg", "inputs": "x", "mode": ["trian"] * 50_000}})


@document
def ops_after_unknown_ops() -> str:
    return spec(ops={"z": {"call": "neg", "inputs": "x", "after": [f"fitt{number}" for number in range(20_000)]}})


@document
def ops_after_all_others() -> str:
    return spec(
        ops=numbered(400, lambda number: {"call": "neg", "inputs": "x", "after": [f"n{n}" for n in range(number)]})
    )


@document
def ops_after_each_other() -> str:
    return spec(ops=numbered(2_000, lambda number: {"call": "neg", "inputs": f"n{(number + 1) % 2_000}"}))


@document
def weights_tied_by_thousands() -> str:
    ties = [f"net.{number}.weight" for number in range(20_000)]
    return spec(models={"other": {"class": "zoo:Net", "traits": {"ties": ties}}})


# Sizes.


@document
def a_long_chain() -> str:
    return spec(ops=chain(1_000, lambda before: {"call": "neg", "inputs": before}))


@document
def a_wide_sum() -> str:
    return spec(ops={"z": {"call": "add", "inputs": ["x"] * 20_000}})


@document
def a_wide_sum_of_losses() -> str:
    losses = numbered(300, lambda _: {"loss": "mse", "inputs": ["y", 0.0]}, "l")
    return spec(ops={**losses, "all": {"call": "sum", "inputs": [*losses]}, "fit": {"update": "net", "loss": "all"}})


@document
def updates_by_the_hundred() -> str:
    return updated(60, lambda number: {})


@document
def models_alike_in_a_chain() -> str:
    alike = {f"m{number}": {"like": f"m{number - 1}" if number else "net"} for number in range(3_000)}
    return spec(models=alike)


@document
def models_alike_in_a_circle() -> str:
    return spec(models={f"m{number}": {"like": f"m{(number + 1) % 3_000}"} for number in range(3_000)})


@document
def layers_by_thousands() -> str:
    return spec(models={"net": {"layers": [{"linear": 4}] * 3_000, "optimizer": "sgd"}})


@document
def layers_nested() -> str:
    layer: object = {"linear": 4}
    for _ in range(28):
        layer = {"residual": [layer]}
    return spec(models={"net": {"layers": [layer], "optimizer": "sgd"}})


@document
def layers_of_enormous_sizes() -> str:
    layers = [{"linear": 10**17}, {"reshape": [10**9, 10**8]}, "flatten", {"linear": 2}]
    return spec(models={"net": {"layers": layers, "optimizer": "sgd"}})


@document
def shapes_with_many_axes() -> str:
    return spec(inputs={"x": {"shape": ["batch", *[2] * 20_000]}})


@document
def numbers_of_thousands_of_digits() -> str:
    return spec().replace('"shape": ["batch", 4]', f'"shape": ["batch", {"9" * 5_000}]')


@document
def a_number_of_millions_of_digits() -> str:
    return spec().replace('"graphspec": 1', f'"graphspec": {"1" * 8_000_000}')


@document
def a_float_of_millions_of_digits() -> str:
    return spec().replace('"graphspec": 1', f'"graphspec": 0.{"1" * 8_000_000}e99999999999')


@document
def schedules_of_thousands_of_moments() -> str:
    moments = {str(number): 0.1 for number in range(30_000)}
    return spec(models=net(optimizer={"name": "sgd", "lr": {"schedule": "piecewise", "at": moments}}))


@document
def schedules_of_thousands_of_parts() -> str:
    parts = [{"schedule": "constant", "value": 0.1, "over": 10}] * 3_000
    return spec(models=net(optimizer={"name": "sgd", "lr": {"schedule": "join", "parts": parts}}))


@document
def columns_by_thousands() -> str:
    train = {"source": "npz", "path": "a.npz", "batch": 2, "columns": numbered(100_000, str, "x")}
    return spec(data={"train": train})


@document
def duration_of_many_digits() -> str:
    return spec(ops={"fit": {"update": "net", "loss": "far", "start": f"{'9' * 100_000} steps"}})


@document
def duration_of_many_blanks() -> str:
    return spec(ops={"fit": {"update": "net", "loss": "far", "start": f"1{' ' * 500_000}x"}})


@document
def groups_that_overlap() -> str:
    return grouped(*("weight" for _ in range(300)), layers=100)


# Text.


def lines(many: Iterable[str]) -> str:
    """Return lines of YAML behind the head of a spec."""
    return "\n".join(("graphspec: 1", "name: large", *many)) + "\n"


@document
def keys_given_twice() -> str:
    return lines(f"ops: {{a{number}: 1}}" for number in range(100_000))


@document
def one_line_of_a_megabyte() -> str:
    return lines([f"ops: {{{', '.join(f'o{number}: {{cal: neg}}' for number in range(20_000))}}}"])


@document
def aliases_of_a_long_text() -> str:
    return lines([f"a: &a {'x' * 100_000}", *(f"b{number}: *a" for number in range(20_000))])


@document
def aliases_unknown() -> str:
    return lines(f"b{number}: *aaaaaaaaaaaaaaaaaaaaaaaaaaa{number}" for number in range(3_000))


@document
def anchors_and_unknown_aliases() -> str:
    anchors = [f"b{number}: &anchor_of_a_value_{number} 1" for number in range(20_000)]
    return lines([*anchors, *(f"c{number}: *ancor_of_a_value_{number}" for number in range(200))])


@document
def alias_bomb() -> str:
    heads = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    return lines(heads)


@document
def brackets_left_open() -> str:
    return "[" * 200_000


@document
def tags_by_thousands() -> str:
    return lines(f"b{number}: !!python/object:os.system 1" for number in range(20_000))


@document
def controls_in_every_line() -> str:
    return lines(f'b{number}: "\\u001b[31m\\u202e"' for number in range(20_000))
