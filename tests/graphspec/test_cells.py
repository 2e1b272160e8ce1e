"""A graph that is declared in a notebook: names come from assignments, and messages name the cell, as IPython does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell

from compiler import compile_step

FIRST = """\
from graphspec import Graph
from graphspec.library import mse
g = Graph("cells")"""
SECOND = """\
x = g.input("x", ["batch", 2])
net = g.model("net", layers=[{"linear": 2}], optimizer="sgd")
out = net(x, mode="train")
step = g.update(net, loss=mse(out, 0.0))
spec = g.build(outputs=[out])"""


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """Return a shell of IPython without history on the disk."""
    InteractiveShell.clear_instance()
    made = InteractiveShell.instance(history_length=0)
    made.history_manager.enabled = False
    yield made
    InteractiveShell.clear_instance()


def test_a_place_is_the_cell_and_its_line(shell: InteractiveShell) -> None:
    for number, cell in enumerate([FIRST, SECOND], start=1):
        shell.run_cell(cell, store_history=True).raise_error()
        assert shell.user_ns["In"][number] == cell
    spec = shell.user_ns["spec"]
    assert {"out", "step"} <= spec.ops.keys()
    assert [*spec.texts()] == ["In[1]", "In[2]"]
    assert spec.span("ops", "out").place == "In[2]:3:7"
    assert "step: update (In[2]:4:8)" in compile_step(spec).explain("step")


def test_a_cell_that_runs_again_is_the_newer_one(shell: InteractiveShell) -> None:
    for cell in (FIRST, SECOND, "again = 1", FIRST, SECOND):
        shell.run_cell(cell, store_history=True).raise_error()
    assert shell.user_ns["spec"].span("ops", "out").place == "In[5]:3:7"
