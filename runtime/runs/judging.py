"""Evaluation of a run that has ended: one pass over a data set with the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graphspec.evaluation import find_role, find_told
from graphspec.graph import GraphSpec
from runtime.data import open_feed, replace_source
from runtime.imports import importable
from runtime.problems import problem
from runtime.runs.evaluation import Evaluation
from runtime.runs.reopening import Reopened, reopen


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be evaluated: a run, on which data (None: what the run evaluates on), at which checkpoint."""

    folder: Path
    data: str | None
    choice: str
    device: str
    allow: tuple[str, ...]
    jit_compile: bool = False
    """Whether XLA compiles the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The figures of a checkpoint on a data set, by output."""

    path: Path
    data: str
    figures: Mapping[str, float]


def judge(question: Question) -> Answer:
    """Return the figures of a run; they equal those that the run itself printed for this checkpoint and data.

    Raises SpecError: GS240-GS243 the run or the checkpoint, GS219 the spec has no such mode, GS220 no such data, and
    what opening the data or building the step raises.
    """
    run = reopen(
        question.folder,
        choice=question.choice,
        device=question.device,
        allow=question.allow,
        jit_compile=question.jit_compile,
    )
    mode = "eval" if run.spec.run.eval is None else run.spec.run.eval.mode
    spec, role = _find_data(run, question.data)
    with importable(run.directory):
        feed = open_feed(
            spec,
            role,
            seed=run.record.seed,
            allow=question.allow,
            directory=run.directory,
            dataset=_find_dataset(spec, role),
        )
        figures = Evaluation.of(spec, run.step, feed, mode).run()
    if not figures:
        help = f"add `metric` ops, or name values that mode {mode} computes in `outputs`"
        raise problem("GS248", f"mode {mode} of the spec gives no figures", help=help)
    return Answer(path=run.path, data=question.data or role, figures=figures)


def _find_dataset(spec: GraphSpec, role: str) -> str | None:
    """Return of which data set the batches are; those of several training sets say so themselves."""
    return None if role == "train" else find_told(spec)


def _find_data(run: Reopened, data: str | None) -> tuple[GraphSpec, str]:
    """Return the spec and the role of the data: a role of the spec, or one whose file is replaced by another."""
    role = find_role(run.spec)
    if data is None or data in run.spec.data:
        return run.spec, data or role
    return replace_source(run.spec, role, Path(data).absolute()), role
