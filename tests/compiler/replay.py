"""Run a plan in the published format on counters: who reads which version, and what a pending gradient still needs."""

from __future__ import annotations

from tests.compiler.naive import Naive


def find_faults(function: dict, meaning: Naive, *, keeps_cells: bool) -> list[str]:
    """Return everything that would go wrong if the instructions of a function ran in order.

    ``keeps_cells``: a gradient reads the parameters and buffers themselves at the moment it runs, as PyTorch's does.
    """
    replay = _Replay(meaning, keeps_cells)
    for instruction in function["instructions"]:
        getattr(replay, f"run_{instruction['kind']}", replay.run_other)(instruction)
    return replay.faults


class _Replay:
    """The state of one run: the version of every cell, the living values, the graphs still to be differentiated."""

    def __init__(self, meaning: Naive, keeps_cells: bool) -> None:
        self.meaning = meaning
        self.keeps_cells = keeps_cells
        self.current: dict[str, int] = {}
        self.alive = set(meaning.document["inputs"])
        self.forwards: dict[str, dict] = {}
        self.graphs: set[str] = set()
        self.faults: list[str] = []

    def run_other(self, instruction: dict) -> None:
        """Run a call, a loss or a metric."""
        self._use(instruction, [name for name in instruction["inputs"] if isinstance(name, str)])
        if instruction["graph"]:
            self.graphs.add(instruction["op"])
        self.alive |= set(instruction["outputs"])

    def run_forward(self, instruction: dict) -> None:
        """Run a model: it must find the versions that the step means."""
        name = instruction["op"]
        for cell in self.meaning.items[name].reads:
            self._expect(name, cell, self.meaning.version(name, cell))
        self.forwards[name] = instruction
        self.run_other(instruction)
        self._write(instruction)

    def run_gradient(self, instruction: dict) -> None:
        """Differentiate: the whole path must have a graph, and the cells its forwards read must still be there."""
        name = instruction["op"] if instruction["op"] in self.meaning.gradients() else f"{instruction['op']}.gradient"
        path = self.meaning.path(name)
        self._use(instruction, [instruction["loss"]])
        self.faults += [f"{name} needs the graph of {member}" for member in sorted(path - self.graphs)]
        for member in sorted(path & self.forwards.keys()) if self.keeps_cells else ():
            self._check_kept(name, member)
        if not instruction["retain_graph"]:
            self.graphs -= path
        if instruction["create_graph"]:
            self.graphs.add(name)
        self.alive |= set(instruction["outputs"])

    def _check_kept(self, gradient: str, forward: str) -> None:
        """Compare what a forward read with what is there now that its gradient runs."""
        snapshot = self.forwards[forward]["snapshot"]
        for cell in self.meaning.items[forward].reads:
            is_cloned = snapshot == "all" or (snapshot == "buffers" and cell.endswith(".buffers"))
            if not is_cloned:
                self._expect(f"{gradient} through {forward}", cell, self.meaning.version(forward, cell))

    def run_apply(self, instruction: dict) -> None:
        """Step an optimizer on gradients that exist."""
        self._use(instruction, instruction["inputs"])
        self._write(instruction)

    def run_blend(self, instruction: dict) -> None:
        """Average or copy a model, at the versions that the step means."""
        for cell in self.meaning.items[instruction["op"]].reads:
            self._expect(instruction["op"], cell, self.meaning.version(instruction["op"], cell))
        self._write(instruction)

    run_assign = run_blend

    def run_release(self, instruction: dict) -> None:
        """Forget values."""
        self.alive -= set(instruction["values"])

    def run_emit(self, instruction: dict) -> None:
        """Return values that are still there."""
        self._use(instruction, instruction["values"])

    def _use(self, instruction: dict, values: list[str]) -> None:
        gone = [value for value in values if value not in self.alive]
        self.faults += [f"{instruction['kind']} {instruction['op']} uses {value}, which is not there" for value in gone]

    def _expect(self, who: str, cell: str, version: int) -> None:
        found = self.current.get(cell, 0)
        if found != version:
            self.faults.append(f"{who} finds {cell}@{found} in place of @{version}")

    def _write(self, instruction: dict) -> None:
        name = instruction["op"]
        for cell in self.meaning.items[name].writes:
            self._expect(name, cell, self.meaning.writers(cell).index(name))
            self.current[cell] = self.meaning.writers(cell).index(name) + 1
