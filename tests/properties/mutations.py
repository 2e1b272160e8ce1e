"""Ways to get the analysis wrong: every function here takes a function of the compiler and returns a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from compiler.ir.instructions import Apply
from compiler.ir.step_graph import Edge, GradientPath, Hazard, StepGraph
from compiler.passes.activate import Outputs
from compiler.passes.order import close_ordering
from compiler.passes.paths import LossPaths
from compiler.passes.policies import Policy, choose_listed

Change = Callable[[Any], Any]
NO_PATH = GradientPath(nodes=frozenset(), uses=frozenset())


def give(value: object) -> Change:
    """Return one value whatever is asked."""
    return lambda original: lambda *arguments, **options: value


def change(function: Callable[..., object]) -> Change:
    """Return what a function makes of the right answer; it gets that, then the arguments, but for options."""
    return lambda original: lambda *arguments, **options: function(original(*arguments, **options), *arguments)


def change_arguments(function: Callable[..., tuple]) -> Change:
    """Return the right answer to arguments that a function has changed."""
    return lambda original: lambda *arguments: original(*function(*arguments))


def change_options(**changed: object) -> Change:
    """Return the right answer to other options."""
    return lambda original: lambda *arguments, **options: original(*arguments, **{**options, **changed})


def change_row(kind: type, function: Callable[..., object]) -> Change:
    """Return a table in which a function changes the right answers of a row; it gets these, then the arguments."""
    return lambda table: {**table, kind: change(function)(table[kind])}


# ---------------------------------------------------------------- edges


def drop(*kinds: Hazard, where: Callable[[StepGraph, Edge], bool] = lambda graph, edge: True) -> Change:
    """Forget the hazards of some kinds."""
    return change(
        lambda found, graph, table: replace(
            found, hazards=tuple(one for one in found.hazards if one.hazard not in kinds or not where(graph, one))
        )
    )


def is_follower(graph: StepGraph, edge: Edge) -> bool:
    """Return whether an edge holds back an average or a copy."""
    return not graph.nodes[edge.after].uses


def is_training(graph: StepGraph, edge: Edge) -> bool:
    """Return whether an edge protects the buffers of train-mode forwards."""
    return all(graph.nodes[name].writes for name in edge.through)


def keep_first(found: Iterator[object], *arguments: object) -> Iterator[object]:
    """Keep the first source of each op."""
    yield from list(found)[:1]


def without_every(found: Iterator[Edge], *arguments: object) -> Iterator[Edge]:
    """Read `after`, but not the update that `every` names."""
    yield from (edge for edge in found if "`every:" not in edge.why)


def without_forwards(found: Iterator[Edge], spec: object, node: Any, nodes: object) -> Iterator[Edge]:
    """Read `after` at writes alone."""
    yield from found if node.is_write else ()


def without_data(nodes: object, edges: tuple[Edge, ...]) -> tuple:
    """Let nothing come after an op by way of a value alone."""
    return nodes, [edge for edge in edges if edge.hazard is not Hazard.DATA]


def forget_absent(found: StepGraph, scene: Any, *arguments: object) -> StepGraph:
    """Forget what stood before an op that does not fire."""
    kept = tuple(edge for edge in scene.ordering if edge.before in found.nodes and edge.after in found.nodes)
    return replace(found, causality=close_ordering(found.nodes, kept), ordering=kept)


def untie(found: dict[str, tuple[str, ...]], *arguments: object) -> dict[str, tuple[str, ...]]:
    """Let every model have its parameters for itself."""
    return {model: cells[:1] for model, cells in found.items()}


# ---------------------------------------------------------------- versions


def read_too_old(found: int, node: Any, read: Any, *arguments: object) -> int:
    """Read one version too old."""
    return found if read.streaming else max(0, found - 1)


def read_newest_buffers(found: int, node: Any, read: Any, history: Any, *arguments: object) -> int:
    """Let evaluations read the statistics that the step ends with."""
    return len(history.versions) if read.cell.kind == "buffers" and not read.streaming and node.called else found


def read_oldest_buffers(found: int, node: Any, read: Any, *arguments: object) -> int:
    """Let evaluations read the statistics that the step starts with."""
    return 0 if read.cell.kind == "buffers" and not read.streaming and node.called else found


def turn_listing(nodes: dict, causality: object) -> tuple:
    """Let train-mode forwards run in the opposite order where nothing else orders them."""
    return dict(reversed(nodes.items())), causality


# ---------------------------------------------------------------- paths and flags


def ignore_stop(loss: str, nodes: dict, *arguments: object) -> tuple:
    """Let paths run through what is constant for every gradient."""
    return loss, {name: replace(node, differentiable=True) for name, node in nodes.items()}, *arguments


def without_inner(loss: str, nodes: object, producers: object, inner: dict) -> tuple:
    """Let a second derivative need nothing of the path of the first."""
    return loss, nodes, producers, dict.fromkeys(inner, NO_PATH)


def all_reaching(found: object, paths: LossPaths, *arguments: object) -> frozenset:
    """Put everything on the path that leads to the loss, whether the targets lead to it or not."""
    return frozenset(paths.reaching)


def first_path(graph: StepGraph, *arguments: object) -> tuple:
    """Look at the first gradient alone."""
    return replace(graph, paths=dict(list(graph.paths.items())[:1])), *arguments


def retain_for_next(found: dict, graph: StepGraph) -> dict:
    """Keep a graph only where the very next gradient needs it."""
    ordered = [name for name in graph.sequence if name in graph.paths]
    following = dict(pairwise(ordered))
    return {name: later for name, later in found.items() if following[name] in later}


def retain_but_one(found: dict, graph: StepGraph) -> dict:
    """Forget one of the graphs that must be kept."""
    return dict(list(found.items())[1:])


def retain_but_last(found: dict, graph: StepGraph) -> dict:
    """Keep all graphs but the last."""
    ordered = [name for name in graph.sequence if name in graph.paths]
    return {name: tuple(ordered[index + 1 :]) for index, name in enumerate(ordered[:-1])}


def freeze_all(found: object, graph: StepGraph, recorded: frozenset[str]) -> frozenset[str]:
    """Freeze the weights of every forward."""
    return frozenset(name for name in recorded if graph.nodes[name].called is not None)


def record_last(found: StepGraph, graph: StepGraph) -> StepGraph:
    """Record a graph for the last gradient alone."""
    taken = [name for name in graph.sequence if name in graph.paths]
    recorded = graph.paths[taken[-1]].nodes if taken else frozenset[str]()
    return replace(found, flags=replace(found.flags, recorded=recorded))


def without_clones(found: StepGraph, graph: StepGraph, *arguments: object) -> StepGraph:
    """Break a cycle as if buffers were cloned, and clone none."""
    return replace(found, snapshots=graph.snapshots)


# ---------------------------------------------------------------- schedule


def list_fewest(original: dict) -> dict:
    """Take the updates as they are listed, whatever must wait."""
    return {**original, "fewest": Policy(name="fewest", choose=choose_listed)}


def free_early(found: object, graph: StepGraph) -> dict[str, tuple[str, ...]]:
    """Forget values after their first use."""
    first: dict[str, str] = {}
    for name in graph.sequence:
        for use in graph.nodes[name].uses:
            first.setdefault(use.value, name)
    made = {value for node in graph.nodes.values() for value in node.defines} - set(graph.outputs)
    return {name: tuple(one for one, user in first.items() if user == name and one in made) for name in graph.nodes}


# ---------------------------------------------------------------- what ops mean


def apply_unclipped(name: str, op: Any, sets: dict, context: object, may_miss: object) -> tuple:
    """Write the gradients as they were before the clip."""
    kept = {name if op.loss is not None else one: models for one, models in sets.items()}
    return name, op, kept if op.clip is not None and op.loss is not None else sets, context, may_miss


def first_part(found: Apply, *arguments: object) -> Apply:
    """Step one optimizer of a joint update."""
    return replace(found, parts=found.parts[:1])


def swap_policies(found: str, *arguments: object) -> str:
    """Take `average` for `copy`, and the other way round."""
    return {"copy": "average", "average": "copy"}.get(found, found)


def ignore_train(found: bool, name: str, op: Any, model: Any, context: Any) -> bool:
    """Ignore what a forward says of its mode."""
    return model.updated and context.mode == "train"


def count_steps(found: Any, *arguments: object) -> Any:
    """Let averages and copies count steps, not the writes of their source."""
    if found is None or found.clock == "steps":
        return found
    return replace(found, clock="steps", follows=())


def lose_last(found: tuple, *arguments: object) -> tuple:
    """Lose the pattern of gates that appears last."""
    return found[:-1] if len(found) > 1 else found


def drop_unused(found: frozenset[str], nodes: dict, demanded: Outputs, *arguments: object) -> frozenset[str]:
    """Leave out forwards that nobody uses, although they move statistics."""
    used = {use.value for name in found for use in nodes[name].uses} | set(demanded.demanded)
    return frozenset(name for name in found if nodes[name].is_write or used.intersection(nodes[name].defines))


# ---------------------------------------------------------------- derived models


def of_first_order(nodes: tuple[Any, ...], *arguments: object) -> tuple[Any, ...]:
    """Return the nodes of a derived model, whose gradient is a constant."""
    *others, adapt = nodes
    uses = tuple(
        replace(use, differentiable=use.differentiable and use.value != adapt.gradients.name) for use in adapt.uses
    )
    return *others, replace(adapt, uses=uses)


def without_version(nodes: tuple[Any, ...], *arguments: object) -> tuple[Any, ...]:
    """Return the nodes of a derived model, which reads what is there when it runs."""
    *others, adapt = nodes
    return *others, replace(adapt, reads=())
