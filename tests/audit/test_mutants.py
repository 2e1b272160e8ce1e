"""Every edit is what its label says: an error changes the numbers of the sound script, waste changes none of them."""

from __future__ import annotations

import builtins
import functools
import runpy
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.audit.labels import read_label
from tests.audit.mutants import Mutant, read_edits, score, write

MUTANTS = read_edits()


def tensors(value: object) -> Iterator[torch.Tensor]:
    """Yield the numbers in what `state_dict` returns."""
    if isinstance(value, torch.Tensor):
        yield value.detach().clone()
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each)
    elif isinstance(value, (int, float)):
        yield torch.tensor(float(value))


def run(source: str, name: str, folder: Path) -> list[torch.Tensor]:
    """Run a script and return what its models, optimizers, schedules and scalers hold at the end."""
    path = folder / name
    path.write_text(source, encoding="utf-8")
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = runpy.run_path(str(path), run_name="__main__")
    holders = [value for value in names.values() if hasattr(value, "state_dict") and not isinstance(value, type)]
    return [each for holder in holders for each in tensors(holder.state_dict())]


@functools.cache
def sound(script: str, folder: Path) -> list[torch.Tensor]:
    """Return what a sound script holds at the end."""
    path = next(each for each in MUTANTS if each.script == script)
    return run(path.original, f"{script}.py", folder)


def is_same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutants")


def test_there_are_enough_edits_of_enough_scripts():
    decidable = [each for each in MUTANTS if each.is_decidable]
    assert len(decidable) >= 60
    assert len({each.script for each in decidable}) >= 12


def test_the_label_of_every_mutant_can_be_read_and_names_its_lines(tmp_path: Path):
    for path, mutant in zip(write(tmp_path), MUTANTS, strict=True):
        label = read_label(path)
        assert (label is not None) == mutant.is_decidable, path.name
        if label is not None:
            written = {path.read_text(encoding="utf-8").splitlines()[number - 1] for number in label.lines}
            assert {line.partition("  # expect")[0].strip() for line in written} == {*mutant.at}, path.name
            assert f"{label.cause} {label.level}" == mutant.label
        else:
            assert mutant.label.startswith("undecidable, ")


@pytest.mark.long
def test_an_audit_finds_most_edits_with_cause_and_line(capsys: pytest.CaptureFixture[str]):
    scored = score()
    assert scored.found + len(scored.missed) == sum(each.is_decidable for each in MUTANTS)
    assert scored.rate >= 0.85, capsys.readouterr().out


@pytest.mark.sample(4)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.script}-{mutant.label.split()[0]}")
def test_an_edit_changes_the_numbers_unless_it_wastes(mutant: Mutant, folder: Path, capsys: pytest.CaptureFixture[str]):
    source = mutant.source()
    if mutant.raises is not None:
        exception, line = mutant.raises
        with pytest.raises(getattr(builtins, exception)) as caught:
            run(source, "raises.py", folder)
        places = [frame.line for frame in traceback.extract_tb(caught.tb) if frame.filename.endswith("raises.py")]
        assert str(places[-1]).startswith(line)
    else:
        wasteful = mutant.label.endswith(" waste")
        assert is_same(run(source, "edited.py", folder), sound(mutant.script, folder)) == wasteful
