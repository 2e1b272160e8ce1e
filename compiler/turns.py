"""Turns: what a mode does on a batch of each data set, and the gates of its ops."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from compiler.activity import Outputs, find_live_gates, find_outputs
from compiler.checks.context import Scene
from compiler.clocks import sort_gates
from compiler.epochs import find_closing, time_windows
from compiler.holdable import find_holdable, find_undecided
from compiler.ir import Node
from compiler.program import Function, Gate, Mode, Program
from graphspec.datasets import find_all_places, find_datasets, find_possible
from graphspec.graph import GraphSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The data sets of a mode: what a step on a batch of each returns, and the ops that fire in all of its steps."""

    gates: tuple[Gate, ...]
    outputs: Mapping[str, Outputs]
    """By data set; there is one without a name where the spec names none."""
    always: Mapping[str, frozenset[str]]
    """By data set: the ops without a gate."""
    undecided: frozenset[str]
    """Gates of which no clock tells when they are due, as they count writes that may be held."""
    places: Mapping[str, frozenset[str]]
    """By op: the data sets that it runs on."""
    closing: frozenset[str]
    """The gates of what ends windows with an epoch, whatever the data set of its last step."""
    are_told: bool
    """A step is told of which data set its batch is."""

    @classmethod
    def of(
        cls,
        spec: GraphSpec,
        mode: Mode,
        nodes: Mapping[str, Node],
        others: tuple[Gate, ...] = (),
        epoch: int | None = None,
    ) -> Turns:
        """Return the turns of a mode; ``others`` are gates of what is no op, ``epoch`` is its length in steps."""
        datasets, possible = find_datasets(spec), find_possible(spec, mode)
        places = find_all_places(spec)
        closing = find_closing(spec)
        nodes = {key: node for key, node in nodes.items() if not places[node.op].isdisjoint(possible)}
        views = {each: _look(nodes, each, places, closing) for each in possible}
        outputs = {each: find_outputs(spec, mode, _look(nodes, each, places)) for each in possible}
        restricted = {
            name: tuple(each for each in possible if each in found)
            for name, found in places.items()
            if not found.issuperset(possible)
        }
        demanded = tuple(dict.fromkeys(value for each in outputs.values() for value in each.demanded))
        live = time_windows(find_live_gates(spec, nodes, demanded, restricted), spec, epoch)
        gates = (*others, *sort_gates(live))
        gated = frozenset(gate.op for gate in gates)
        admitted = {each: frozenset(node.admission for node in view.values()) for each, view in views.items()}
        return cls(
            gates=gates,
            outputs=outputs,
            always={each: found - gated for each, found in admitted.items()},
            undecided=find_undecided(gates, find_holdable(nodes)),
            places=places,
            closing=closing,
            are_told=bool(datasets),
        )

    @property
    def anywhere(self) -> frozenset[str]:
        """Return the ops that fire in all steps on batches of some data set."""
        return frozenset[str]().union(*self.always.values())

    def look(self, scene: Scene, dataset: str) -> Scene:
        """Return what there is of a scene on a batch of a data set."""
        if not self.are_told:
            return scene
        return replace(scene, nodes=_look(scene.nodes, dataset, self.places, self.closing))


def _look(
    nodes: Mapping[str, Node], dataset: str, places: Mapping[str, frozenset[str]], closing: Container[str] = ()
) -> Mapping[str, Node]:
    """Return the nodes that can run on a batch of a data set: those of its ops, and what ends windows on any."""
    return {key: node for key, node in nodes.items() if dataset in places[node.op] or node.admission in closing}


def is_particular(function: Function, program: Program) -> bool:
    """Return whether a function is for batches of some data sets alone."""
    possible = {each for other in program.mode(function.mode).functions for each in other.datasets}
    return not possible.issubset(function.datasets)


def tell_datasets(datasets: tuple[str, ...]) -> str:
    """Return data sets in words."""
    return ", ".join(each or "no data set" for each in datasets)
