"""Replay: a compiled graph is recorded as one CUDA graph, which the host then launches with a single call.

A recording reads and writes the memory that it was made with. Weights, slots and sums stay where they are. Inputs that
are elsewhere in every step, such as batches, are copied to a place of their own first, and results are copied out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any, Protocol, TypeAlias, final

import torch

from runtime.backends.torch.compat import Compile, add_input, copy_graph, find_source
from runtime.backends.torch.execution import ERRORS
from runtime.backends.torch.library.kernels import foreach_copy

Run: TypeAlias = Callable[..., Sequence[Any]]
Report: TypeAlias = Callable[[str], None]

MOST = 8
"""After so many steps that are no recordings of before, as tensors have moved again, nothing more is recorded."""


class Recorder(Protocol):
    """What records the operations of a device."""

    def rehearse(self, run: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """Run where a recording will be made, so that libraries make there what they cannot make in it."""
        ...

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Callable[[], None], Sequence[Any]]:
        """Record a run that does not take place; return what makes it take place, and its results then."""
        ...


@final
class CudaRecorder:
    """Records on a stream of its own; all recordings of a step, which never run at once, share their memory."""

    def __init__(self, device: torch.device) -> None:
        self.stream, self.pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    def rehearse(self, run: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """Run on the stream of the recordings."""
        outside = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(outside)
        with torch.cuda.stream(self.stream):
            found = run()
        outside.wait_stream(self.stream)
        return found

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Callable[[], None], Sequence[Any]]:
        """Record a run; other threads, which may load data, use the device meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            found = run()
        return graph.replay, found


def find_recorder(device: torch.device) -> Recorder | None:
    """Return what records on a device; None where nothing does."""
    return CudaRecorder(device) if device.type == "cuda" else None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A run of a graph that was recorded."""

    replay: Callable[[], None]
    staying: Sequence[int]
    """The inputs that it reads and writes where they are."""
    places: Sequence[int]
    """Their addresses."""
    copied: Sequence[int]
    """The inputs that are copied first."""
    copies: list[torch.Tensor]
    """The memory to which they are."""
    outputs: Sequence[Any]
    kept: Sequence[bool]
    """Which outputs are handed out as they are: those that are no tensors, and views of what stays in its place."""

    def fits(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return whether all that should have stayed in its place has."""
        return [inputs[at].data_ptr() for at in self.staying] == self.places


@final
@dataclass(slots=True, kw_only=True)
class Replayed:
    """A compiled graph. Its first step runs it as it is, the second where it will be recorded; others are recordings.

    ``run`` takes inputs and the draws that ``draw`` makes of these: random numbers are not recorded.
    """

    title: str
    run: Run
    draw: Run
    recorder: Recorder
    report: Report
    reason: str
    """Why it is not recorded."""
    moving: set[int]
    """The inputs that are elsewhere in every step, as far as is known."""
    places: Sequence[int] = ()
    """The addresses of the inputs of the last step that was no recording."""
    written: Sequence[int] = ()
    """The inputs into which the graph writes; what it writes into draws, nothing else reads."""
    steps: int = 0
    """How many steps were no recordings, or made one."""
    recording: Recording | None = None

    def __call__(self, *given: torch.Tensor) -> Sequence[Any]:
        """Run the graph, and return results that no later step changes."""
        inputs = (*given, *self.draw(*given))
        if self.recording is not None and self.recording.fits(inputs):
            return self.play(self.recording, inputs)
        self.steps += 1
        if self.reason or self.steps == 1:
            return self.run(*inputs)
        if self.steps == 2:
            return self.rehearse(given, inputs)
        self.recording, self.reason = self.find_recording(inputs)
        if self.recording is not None:
            return self.play(self.recording, inputs)
        warnings.warn(f"{self.title} is not recorded as a CUDA graph: {self.reason}", stacklevel=2)
        return self.run(*inputs)

    def rehearse(self, given: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Run the graph, and find into which inputs it writes."""
        before = [each._version for each in given]
        found = self.recorder.rehearse(lambda: self.run(*inputs))
        self.written = [at for at, each in enumerate(given) if each._version != before[at]]
        self.places = [each.data_ptr() for each in inputs]
        return found

    def find_recording(self, inputs: Sequence[torch.Tensor]) -> tuple[Recording | None, str]:
        """Return a new recording for inputs that have moved, or None, and why there is none."""
        places = [each.data_ptr() for each in inputs]
        moved = {at for at, (one, other) in enumerate(zip(places, self.places, strict=True)) if one != other}
        self.moving |= moved.difference(self.written)  # a weight that was replaced stays in its new place
        self.places = places
        if not self.moving.isdisjoint(self.written):
            return None, "it writes into its batch"
        if self.steps > MOST:
            return None, "its tensors have moved too often"
        try:
            return self.record(inputs), ""
        except Exception as error:  # what ends a recording that failed has an error of its own
            return None, ERRORS.clean(error.__context__ or error)

    def record(self, inputs: Sequence[torch.Tensor]) -> Recording:
        """Record the graph."""
        copied = [at for at in sorted(self.moving) if inputs[at].numel()]
        spans = {at: span_of(inputs[at]).clone() for at in copied}
        fixed = [
            spans[at].as_strided(each.shape, each.stride()) if at in spans else each for at, each in enumerate(inputs)
        ]
        replay, outputs = self.recorder.record(lambda: self.run(*fixed))
        self.report(f"recorded {self.title} as a CUDA graph")
        staying = [at for at in range(len(inputs)) if at not in self.moving]
        memory = {memory_of(inputs[at]) for at in staying if inputs[at].numel()}
        return Recording(
            replay=replay,
            staying=staying,
            places=[self.places[at] for at in staying],
            copied=copied,
            copies=[*spans.values()],
            outputs=outputs,
            kept=[not isinstance(each, torch.Tensor) or memory_of(each) in memory for each in outputs],
        )

    def play(self, recording: Recording, inputs: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Run what was recorded."""
        if recording.copied:
            foreach_copy(recording.copies, [span_of(inputs[at]) for at in recording.copied])
        recording.replay()
        torch.autograd.graph.increment_version([inputs[at] for at in self.written])
        pairs = zip(recording.outputs, recording.kept, strict=True)
        return [each if is_kept else each.detach().clone() for each, is_kept in pairs]


def memory_of(tensor: torch.Tensor) -> int:
    """Return the address of the memory that a tensor shares with its views."""
    return tensor.untyped_storage().data_ptr()


def span_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return all memory between the first and the last element of a tensor, which has some, as a tensor of one axis."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach().as_strided((extent,), (1,))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A compiler of graphs that run as recordings: what it makes of another's.

    ``obstacles`` gets why a graph cannot be recorded, where that is known before it runs.
    """

    title: str
    compiler: Compile
    recorder: Recorder
    device: torch.device
    report: Report
    obstacles: list[str] = field(default_factory=list[str])

    def __call__(self, graph: Any, inputs: Sequence[torch.Tensor]) -> Replayed:
        """Compile a graph without its draws."""
        cut, drawn, draw = cut_draws(graph)
        reason = find_obstacle(cut, self.device)
        self.obstacles[:] = filter(None, (reason,))
        nodes = cut.graph.find_nodes(op="placeholder")
        return Replayed(
            title=self.title,
            run=self.compiler(cut, (*inputs, *drawn)),
            draw=draw,
            recorder=self.recorder,
            report=self.report,
            reason=reason,
            moving={at for at, node in enumerate(nodes) if not find_source(node).startswith("G[")},
        )


def find_obstacle(graph: Any, device: torch.device) -> str:
    """Return why a graph cannot be recorded; empty where nothing is known.

    The address and the number of what is on the host would be those of the step that was recorded for ever.
    """
    for node in (each for each in graph.graph.nodes if each.users):
        found = node.meta.get("example_value")
        name = find_source(node) if node.op == "placeholder" else node.name
        if node.op == "placeholder" and not isinstance(found, torch.Tensor):
            return f"`{name}` is a number of Python"
        for each in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(each, torch.Tensor) and each.device.type != device.type:
                return f"`{name}` is a tensor of the host" if each.device.type == "cpu" else f"`{name}` is elsewhere"
    return ""


def cut_draws(made: Any) -> tuple[Any, list[torch.Tensor], Run]:
    """Return a graph without its keyed draws, whose results are more inputs of it.

    Also return examples of these, and what makes them of the inputs that it had: a graph, too.
    """
    graph, outside = copy_graph(made), torch.fx.Graph()
    nodes = [*graph.graph.nodes]
    there = {node: outside.placeholder(node.name) for node in nodes if node.op == "placeholder"}
    keyed = [node for node in nodes if is_keyed(node) or (node.target is getitem and is_keyed(node.args[0]))]

    def find(node: Any) -> Any:
        """Return what a node is outside; of a tensor that gives a mask its form, one without numbers."""
        if node not in there:
            form = node.meta["example_value"]
            options = {"dtype": form.dtype, "device": form.device}
            there[node] = outside.call_function(torch.empty_strided, (tuple(form.shape), form.stride()), options)
        return there[node]

    drawn: dict[Any, torch.Tensor] = {}
    for node in keyed:
        there[node], example = outside.node_copy(node, find), node.meta["example_value"]
        if isinstance(example, torch.Tensor) and not all(user in keyed for user in node.users):
            drawn[there[node]] = example
            given = add_input(graph, f"drawn_{len(drawn)}", example)
            node.replace_all_uses_with(given, lambda user: user not in keyed)
    for node in reversed(keyed):
        graph.graph.erase_node(node)
    graph.recompile()
    outside.output(tuple(drawn))
    return graph, [*drawn.values()], torch.fx.GraphModule({}, outside).forward


def is_keyed(node: Any) -> bool:
    """Return whether a node of a graph makes keyed random numbers."""
    return isinstance(node, torch.fx.Node) and getattr(node.target, "namespace", "") == "keyed"
