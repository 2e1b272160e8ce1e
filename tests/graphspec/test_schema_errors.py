"""Validation errors as diagnostics: one for every mistake, at its place, in the words of a document."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from annotated_types import Ge, MinLen
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from graphspec.check.schema_errors import explain_validation
from graphspec.diagnostics import render
from graphspec.read.overrides import override
from graphspec.read.source import read_document


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Curve(Strict):
    curve: Literal["linear", "cosine"]
    start: float = Field(alias="from")


def refuse(value: object) -> None:
    raise PydanticCustomError(
        "not_built", "`{name}` is not built yet", {"name": value, "help": "remove it", "at": "key"}
    )


class Optimizer(Strict):
    name: Literal["sgd", "adam"]
    lr: float | Curve = 0.1
    fused: Literal["auto"] | bool = "auto"
    decay: Annotated[float, Ge(0)] = 0.0
    amsgrad: Annotated[None, BeforeValidator(refuse)] = None


class Forward(Strict):
    forward: str
    train: bool | None = None


class Random(Strict):
    random: Literal["normal", "uniform"]
    shape: Annotated[tuple[int | str, ...], Field(strict=False), MinLen(1)]

    @field_validator("shape")
    @classmethod
    def check(cls, value: tuple[int | str, ...]) -> tuple[int | str, ...]:
        if 0 in value:
            raise ValueError("a size of 0 holds nothing")
        return value


def kind(value: object) -> str:
    return next((key for key in ("forward", "random") if isinstance(value, dict) and key in value), "none")


Op = Annotated[Annotated[Forward, Tag("forward")] | Annotated[Random, Tag("random")], Discriminator(kind)]


class Linear(Strict):
    curve: Literal["linear"]
    rate: float


class Cosine(Strict):
    curve: Literal["cosine"]
    rate: float


class Model(Strict):
    optimizers: dict[str, Optimizer] = {}
    pair: Annotated[tuple[Optimizer, Forward], Field(strict=False)] | None = None
    curve: Annotated[Linear | Cosine, Field(discriminator="curve")] | None = None
    either: Forward | Random | list[Forward] | str = "x"

    @model_validator(mode="after")
    def check(self) -> Model:
        if self.either == "both":
            context = {"message": "both at once", "help": "choose", "at": "key", "label": "here"}
            raise PydanticCustomError("GS053", "{message}", context)
        return self


class Spec(Strict):
    name: str
    seed: int = 0
    ops: dict[str, Op] = {}
    models: dict[str, Model] = {}


def explain(text, root=Spec, name="g.yaml", overrides=()):
    document = override(read_document(text, name=name), overrides)
    with pytest.raises(ValidationError, match="validation error") as raised:
        root.model_validate(document.data)
    return explain_validation(raised.value, document, root), document


def find(text):
    """Return code and place of every diagnostic below a document that is right itself."""
    return [(item.code, item.span.place) for item in explain(f"name: x\n{text}")[0]]


def tell(text):
    """Return the only diagnostic below a document that is right itself."""
    (diagnostic,) = explain(f"name: x\n{text}")[0]
    return diagnostic


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("nmae: y\n", [("GS040", "g.yaml:2:1")]),
        ("ops: {z: {random: normal, shape: [1], shap: 3}}\n", [("GS040", "g.yaml:2:39")]),
        ("models:\n  g:\n    optimizers: {a: {name: adam, lrr: 3}}\n", [("GS040", "g.yaml:4:34")]),
        ("seed: x\n", [("GS041", "g.yaml:2:7")]),
        ("ops: 3\n", [("GS041", "g.yaml:2:6")]),
        ("ops: {z: {random: normal, shape: 3}}\n", [("GS041", "g.yaml:2:34")]),
        ("ops: {z: {random: normal, shape: [1, [x]]}}\n", [("GS041", "g.yaml:2:38")]),
        ("ops: {z: {random: normal}}\n", [("GS042", "g.yaml:2:7")]),
        ("ops: {z: {random: normal, shpae: [1]}}\n", [("GS040", "g.yaml:2:27")]),
        ("ops: {z: {random: normal, far: [1]}}\n", [("GS042", "g.yaml:2:7"), ("GS040", "g.yaml:2:27")]),
        ("ops: {z: {random: norml, shape: [1]}}\n", [("GS043", "g.yaml:2:19")]),
        ("ops: {z: {random: {a: 1}, shape: [1]}}\n", [("GS043", "g.yaml:2:19")]),
        ("ops: {z: {random: normal, shape: [0]}}\n", [("GS044", "g.yaml:2:34")]),
        ("ops: {z: {random: normal, shape: []}}\n", [("GS044", "g.yaml:2:34")]),
        ("models: {g: {optimizers: {a: {name: adam, decay: -1}}}}\n", [("GS044", "g.yaml:2:50")]),
        ("models: {g: {optimizers: {a: {name: adam, amsgrad: 1}}}}\n", [("GS045", "g.yaml:2:43")]),
        ("models: {g: {either: both}}\n", [("GS053", "g.yaml:2:10")]),
        ("models: {g: {pair: [{name: adm}, {forward: 3}]}}\n", [("GS043", "g.yaml:2:28"), ("GS041", "g.yaml:2:44")]),
        ("models: {g: {pair: [3, {}]}}\n", [("GS041", "g.yaml:2:21"), ("GS042", "g.yaml:2:24")]),
        ("models: {g: {curve: {curve: cosin, rate: 1}}}\n", [("GS043", "g.yaml:2:29")]),
        ("models: {g: {curve: {rate: 1}}}\n", [("GS042", "g.yaml:2:14")]),
        ("models: {g: {curve: {curve: linear, rate: x}}}\n", [("GS041", "g.yaml:2:43")]),
        ("ops: {z: {foo: 1}}\n", [("GS044", "g.yaml:2:10")]),
    ],
)  # fmt: skip
def test_every_mistake_is_told_at_its_place(text, problems):
    assert find(text) == problems


def test_a_branch_that_is_a_key_too_leads_nowhere_wrong():
    assert find("ops: {z: {random: {random: 1}, shape: x}}\n") == [("GS043", "g.yaml:2:19"), ("GS041", "g.yaml:2:39")]


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("either: 3", "GS041", "g.yaml:2:22"),
        ("either: [forward]", "GS041", "g.yaml:2:23"),
        ("either: [{forward: x}, {forward: 3}]", "GS041", "g.yaml:2:47"),
        ("either: {forward: 3}", "GS041", "g.yaml:2:32"),
        ("either: {random: normal, shape: [x], a: 1}", "GS040", "g.yaml:2:51"),
        ("optimizers: {a: {name: adam, lr: abc}}", "GS041", "g.yaml:2:47"),
        ("optimizers: {a: {name: adam, lr: {curve: cosin, from: 1}}}", "GS043", "g.yaml:2:55"),
        ("optimizers: {a: {name: adam, lr: {curve: cosine, form: 1, from: 1}}}", "GS040", "g.yaml:2:63"),
        ("optimizers: {a: {name: adam, fused: atuo}}", "GS043", "g.yaml:2:50"),
        ("optimizers: {a: {name: adam, fused: 3}}", "GS041", "g.yaml:2:50"),
    ],
)
def test_a_union_that_fails_in_all_branches_gives_one_diagnostic_for_the_branch_that_was_meant(text, code, place):
    assert find(f"models: {{g: {{{text}}}}}\n") == [(code, place)]


def test_a_value_of_the_wrong_type_is_told_in_the_words_of_yaml():
    assert tell("models: {g: {optimizers: {a: {name: adam, lr: abc}}}}\n").message == (
        "expected a number or a mapping as `models.g.optimizers.a.lr`, found the string 'abc'"
    )
    assert tell("ops: [1]\n").message == "expected a mapping as `ops`, found a list"
    assert tell("seed:\n").message == "expected a whole number as `seed`, found nothing (null)"
    assert tell("seed: 1.5\n").message == "expected a whole number as `seed`, found the number 1.5"
    fused = tell("models: {g: {optimizers: {a: {name: adam, fused: 3}}}}\n")
    assert fused.message == "expected true or false or 'auto' as `models.g.optimizers.a.fused`, found the number 3"


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("ops: {z: {forward: g, train: yes}}\n", "yes, no, on and off are strings in YAML 1.2: write true or false"),
        ("ops: {z: {forward: g, train: 'true'}}\n", "remove the quotes"),
        ("ops: {z: {forward: 3}}\n", "put it between quotes"),
        ("ops: {z: {random: normal, shape: batch}}\n", "write a list: `[batch]`"),
        ("seed: '3'\n", "remove the quotes"),
        ("seed: 1_000\n", "write 1000"),
        ("seed:\n", "leave out the key, or give it a value"),
        ("seed: true\n", "write a whole number as in `100`"),
        ("ops: {z: {forward: [g]}}\n", "write it without the brackets"),
        ("ops: {z: {random: normal, shape: {n: 3}}}\n", "put brackets around it to make a list of one"),
        ("ops: [1, 2]\n", "a mapping is written `{key: value}`, or with one `key: value` to a line"),
    ],
)
def test_a_well_known_slip_gets_its_remedy(text, help):
    diagnostic = tell(text)
    assert (diagnostic.code, diagnostic.help) == ("GS041", help)


def test_an_unknown_key_gets_a_suggestion_and_the_keys_there_are():
    diagnostic = tell("models: {g: {optimizers: {a: {name: adam, fusd: true}}}}\n")
    assert diagnostic.message == "unknown key 'fusd' in `models.g.optimizers.a`"
    assert diagnostic.label == "did you mean 'fused'?"
    assert diagnostic.help == "its keys are name, lr, fused, decay"


def test_suggestions_are_of_the_branch_that_was_taken_and_by_the_names_users_write():
    assert tell("ops: {z: {forward: g, trian: true}}\n").help == "its keys are forward, train"
    text = "models: {g: {optimizers: {a: {name: adam, lr: {curve: linear, form: 1, from: 1}}}}}\n"
    assert tell(text).label == "did you mean 'from'?"


def test_a_value_that_is_not_allowed_gets_a_suggestion_and_the_values_there_are():
    diagnostic = tell("ops: {z: {random: norml, shape: [1]}}\n")
    assert diagnostic.message == "the string 'norml' is not allowed as `ops.z.random`"
    assert (diagnostic.label, diagnostic.help) == ("did you mean 'normal'?", "write 'normal' or 'uniform'")


def test_a_missing_key_is_told_at_the_key_of_its_mapping_or_the_start():
    diagnostic = tell("ops: {z: {random: normal}}\n")
    assert (diagnostic.message, diagnostic.label) == ("missing key 'shape' in `ops.z`", "needs 'shape'")
    (missing,), _ = explain("# comment\nseed: 1\n")
    assert (missing.message, missing.span.place) == ("missing key 'name' in the document", "g.yaml:2:1")


def test_what_validators_raise_keeps_its_words():
    assert tell("ops: {z: {random: normal, shape: [0]}}\n").message == "a size of 0 holds nothing"
    both = tell("models: {g: {either: both}}\n")
    assert (both.message, both.label, both.help) == ("both at once", "here", "choose")
    amsgrad = tell("models: {g: {optimizers: {a: {name: adam, amsgrad: 1}}}}\n")
    assert (amsgrad.message, amsgrad.help) == ("`1` is not built yet", "remove it")


def test_constraints_are_told_in_words():
    message = "expected a number of at least 0 as `models.g.optimizers.a.decay`, found the number -1"
    assert tell("models: {g: {optimizers: {a: {name: adam, decay: -1}}}}\n").message == message
    message = "expected 1 or more items as `ops.z.shape`, found 0"
    assert tell("ops: {z: {random: normal, shape: []}}\n").message == message


def test_a_list_is_not_too_short_because_its_items_are_wrong():
    assert find("ops: {z: {random: normal, shape: [[1]]}}\n") == [("GS041", "g.yaml:2:35")]


def test_a_value_over_several_lines_is_told_at_its_key():
    assert find("models:\n  z:\n    - 1\n    - 2\n") == [("GS041", "g.yaml:3:3")]


def test_a_document_of_another_type_is_told_as_a_whole():
    (diagnostic,), _ = explain("[1, 2]")
    assert (diagnostic.code, diagnostic.message) == ("GS041", "expected a mapping as the document, found a list")


def test_a_json_document_has_the_same_diagnostics():
    (diagnostic,), _ = explain('{"name": "x", "seeds": 1}', name="g.json")
    assert (diagnostic.code, diagnostic.span.place, diagnostic.label) == (
        "GS040",
        "g.json:1:15",
        "did you mean 'seed'?",
    )


def test_a_value_from_the_command_line_is_told_in_its_assignment():
    (diagnostic,), document = explain("name: x\nseed: 1\n", overrides=["seed=abc"])
    assert diagnostic.span.place == "-s seed=abc:1:6"
    assert "1 | seed=abc\n  |      ^^^\n" in render([diagnostic], document.texts)


def test_diagnostics_are_sorted_by_place():
    diagnostics, _ = explain("seed: x\nfoo: 1\nname: 3\nops: {a: {random: x, shape: 3}}\n")
    assert [item.span.line for item in diagnostics] == [1, 2, 3, 4, 4]


def test_names_of_keys_cannot_break_a_message():
    assert "unknown key '\\x1b[2J'" in render([tell('"\\e[2J": 1\n')], {})
