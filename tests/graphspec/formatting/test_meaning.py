"""fmt changes no meaning and loses no comment: every spec of the tree, and random ones in random styles."""

from __future__ import annotations

import json
import re
from random import Random

import pytest
import yaml

from graphspec.loading import load
from graphspec.read.source import read_document
from graphspec.write.format import format_document
from graphspec.write.layout import WIDTH
from runtime.train.resume import compare_specs
from tests.cli.specs import NAMES, SPECS
from tests.properties.specs import random_spec

SEEDS = range(240)
CHUNKS = 8


def test_there_are_specs():
    assert len(SPECS) >= 40


@pytest.mark.parametrize("path", SPECS, ids=NAMES)
def test_a_spec_of_the_tree_says_the_same_and_keeps_its_comments(path):
    text = path.read_text(encoding="utf-8")
    formatted = format_document(text, str(path))
    assert compare_specs(load(path), load(formatted)) == ()
    assert read_document(formatted).data == read_document(text).data
    assert find_comments(formatted) == find_comments(text)
    assert format_document(formatted, str(path)) == formatted
    code = (line.partition("  #")[0] for line in formatted.splitlines() if not line.lstrip().startswith("#"))
    assert max(map(len, code)) <= WIDTH


def find_comments(text: str) -> list[str]:
    """Return the comments of a text of these files, in which no string has a `#`."""
    return sorted(found.rstrip() for found in re.findall(r"#.*", text))


@pytest.mark.sample(8)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_random_spec_in_a_random_style_says_the_same_and_keeps_its_comments(chunk):
    for seed in SEEDS[chunk::CHUNKS]:
        spec, random = random_spec(Random(seed)), Random(seed)
        text, comments = comment_on(write(spec, random), random)
        formatted = format_document(text, "random.yaml")
        assert read_document(formatted).data == read_document(text).data == spec, seed
        found = re.findall(r"# note \d+", formatted)
        assert sorted(found) == sorted(comments), seed
        assert format_document(formatted, "random.yaml") == formatted, seed
        try:
            one = load(json.dumps(spec))
        except Exception:
            continue
        assert compare_specs(one, load(formatted)) == (), seed


class Single(str):
    """A text between single quotes."""


class Double(str):
    """A text between double quotes."""


class Dumper(yaml.Dumper):
    def ignore_aliases(self, data):
        return True


for kind, style in ((Single, "'"), (Double, '"')):
    Dumper.add_representer(
        kind, lambda dumper, text, style=style: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=style)
    )


def write(spec: dict, random: Random) -> str:
    """Return a spec as YAML in some style, its sections in some order."""
    sections = list(spec.items())
    random.shuffle(sections)
    return yaml.dump(
        quote(dict(sections), random.choice([str, Single, Double])),
        Dumper=Dumper,
        sort_keys=False,
        default_flow_style=random.choice([None, None, False, True]),
        width=random.choice([40, 80, 1000]),
        indent=random.choice([2, 3, 4]),
    )


def quote(value: object, kind: type) -> object:
    """Return a value in which texts are between quotes of a kind, and keys are not."""
    match value:
        case dict():
            return {key: quote(item, kind) for key, item in value.items()}
        case list():
            return [quote(item, kind) for item in value]
        case str():
            return kind(value)
        case _:
            return value


def comment_on(text: str, random: Random) -> tuple[str, list[str]]:
    """Return a text with comments on some of its lines, behind them and between them, and the comments."""
    scalars = [token for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)]
    continued = {line for each in scalars for line in range(each.start_mark.line, each.end_mark.line)}
    lines, comments = [], []
    for number, line in enumerate(text.splitlines()):
        lines.append(line)
        if number in continued:
            continue
        if random.random() < 0.15:
            comments.append(f"# note {len(comments)}")
            lines[-1] += f" {comments[-1]}"
        if random.random() < 0.1:
            lines.append("")
        if random.random() < 0.15:
            comments.append(f"# note {len(comments)}")
            lines.append(" " * random.choice([0, len(line) - len(line.lstrip()), 7]) + comments[-1])
    return "\n".join(lines) + "\n", comments
