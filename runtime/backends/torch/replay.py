"""Replay: a compiled graph is recorded as one CUDA graph, which the host then launches with a single call.

A recording reads and writes the memory that it was made with. Weights, slots and sums stay where they are. Inputs that
are elsewhere in every step, such as batches, are copied to a place of their own first, and results are copied out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any, Protocol, TypeAlias, final

import torch
from msgspec import Struct

from runtime.backends.torch.compat import Compile, add_input, clear_workspaces, copy_graph, find_source, is_unsafe
from runtime.backends.torch.execution import ERRORS
from runtime.backends.torch.library.kernels import foreach_copy

Run: TypeAlias = Callable[..., Sequence[Any]]
Report: TypeAlias = Callable[[str], None]

MOST = 8
"""After so many recordings of a graph in a row that none of its steps could use again, it is recorded no more."""


class Recorder(Protocol):
    """What records the operations of a device."""

    def rehearse(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], str]:
        """Run where a recording will be made, so that libraries make there what they cannot make in it.

        Return the results, and what of the run cannot be recorded; empty where nothing is known.
        """
        ...

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Callable[[], None], Sequence[Any]]:
        """Record a run that does not take place; return what makes it take place, and its results then."""
        ...


@final
class CudaRecorder:
    """Records on a stream of its own; all recordings of a step, which never run at once, share their memory."""

    def __init__(self, device: torch.device) -> None:
        self.stream, self.pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()
        self.keeper: torch.cuda.CUDAGraph | None = None  # an empty graph: memory without any could not be used again

    def rehearse(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], str]:
        """Run on the stream of the recordings, and look whether the host waits: a recording would fail there."""
        outside, mode = torch.cuda.current_stream(self.stream.device), torch.cuda.get_sync_debug_mode()
        self.stream.wait_stream(outside)
        with warnings.catch_warnings(record=True) as seen, torch.cuda.stream(self.stream):
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                found = run()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
                outside.wait_stream(self.stream)
        waits = [each for each in seen if WAITS in str(each.message)]
        for each in seen:
            if each not in waits and DEBUGGING not in str(each.message):
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return found, "some operation waits for the device" if waits else ""

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Callable[[], None], Sequence[Any]]:
        """Record a run."""
        if self.keeper is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it is empty
                self.keeper, _ = self._record(lambda: ())
        graph, found = self._record(run)
        return graph.replay, found

    def _record(self, run: Callable[[], Sequence[Any]]) -> tuple[torch.cuda.CUDAGraph, Sequence[Any]]:
        """Return the graph of a run, and its results; other threads, which may load data, use the device meanwhile.

        What cuBLAS works in is memory of the graph then: other memory would be freed with another graph of its stream.
        """
        graph, failure = torch.cuda.CUDAGraph(), None
        clear_workspaces()
        try:
            with (
                torch.cuda.stream(self.stream),  # which the context of a recording that failed does not leave
                torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"),
            ):
                try:
                    return graph, run()
                except Exception as error:
                    failure = error
                    raise
        except Exception:
            if failure is not None:
                raise failure from None  # the end of the recording has an error of its own
            raise
        finally:
            clear_workspaces()


WAITS, DEBUGGING = "synchronizing CUDA operation", "Synchronization debug mode"
"""Parts of the warnings of an operation that waits for the device, and of looking for such."""


def find_recorder(device: torch.device) -> Recorder | None:
    """Return what records on a device; None where nothing does."""
    return CudaRecorder(device) if device.type == "cuda" else None


@final
class Recording(Struct, frozen=True, kw_only=True):
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
class Replayed(Struct, kw_only=True):
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
    has_run: bool = False
    places: Sequence[int] = ()
    """The addresses of the inputs of the last step that was no recording, or made one; none before the rehearsal."""
    written: Sequence[int] = ()
    """The inputs into which the graph writes; what it writes into draws, nothing else reads."""
    unused: int = 0
    """How many recordings have been made since one was used again."""
    recording: Recording | None = None

    def __call__(self, *given: torch.Tensor) -> Sequence[Any]:
        """Run the graph, and return results that no later step changes."""
        inputs = (*given, *self.draw(*given))
        if self.recording is not None and self.recording.fits(inputs):
            self.unused = 0
            return self.play(self.recording, inputs)
        if self.reason or not self.has_run:
            self.has_run = True
            return self.run(*inputs)
        if not self.places:
            return self.rehearse(given, inputs)
        self.recording, self.reason = self.find_recording(inputs)
        if self.recording is not None:
            return self.play(self.recording, inputs)
        self.give_up()
        return self.run(*inputs)

    def rehearse(self, given: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Run the graph, and find into which inputs it writes."""
        before = [each._version for each in given]
        found, self.reason = self.recorder.rehearse(lambda: self.run(*inputs))
        self.written = [at for at, each in enumerate(given) if each._version != before[at]]
        self.places = [each.data_ptr() for each in inputs]
        if self.reason:
            self.give_up()
        return found

    def give_up(self) -> None:
        """Say why kernels are launched one by one from now on."""
        warnings.warn(f"{self.title} is not recorded as a CUDA graph: {self.reason}", stacklevel=2)

    def find_recording(self, inputs: Sequence[torch.Tensor]) -> tuple[Recording | None, str]:
        """Return a new recording for inputs that have moved, or None, and why there is none."""
        places = [each.data_ptr() for each in inputs]
        moved = {at for at, (one, other) in enumerate(zip(places, self.places, strict=True)) if one != other}
        self.moving |= moved.difference(self.written)  # a weight that was replaced stays in its new place
        self.places = places
        written, moving = (
            {memory_of(inputs[at]) for at in ats if inputs[at].numel()} for ats in (self.written, self.moving)
        )
        if not written.isdisjoint(moving):
            return None, "it writes into its batch, or into memory of it"
        if self.unused == MOST:
            return None, "its tensors are elsewhere in every step"
        self.unused += 1
        try:
            return self.record(inputs), ""
        except Exception as error:
            return None, ERRORS.clean(error)

    def record(self, inputs: Sequence[torch.Tensor]) -> Recording:
        """Record the graph."""
        copied = [at for at in sorted(self.moving) if inputs[at].numel()]
        fixed = list(inputs)
        for at in copied:
            like = inputs[at]
            fixed[at] = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
        copies = [copied_part(fixed[at]) for at in copied]
        foreach_copy(copies, [copied_part(inputs[at]) for at in copied])
        replay, outputs = self.recorder.record(lambda: self.run(*fixed))
        self.report(f"recorded {self.title} as a CUDA graph")
        staying = [at for at in range(len(inputs)) if at not in self.moving]
        memory = {memory_of(inputs[at]) for at in staying if inputs[at].numel()}
        return Recording(
            replay=replay,
            staying=staying,
            places=[self.places[at] for at in staying],
            copied=copied,
            copies=copies,
            outputs=outputs,
            kept=[not isinstance(each, torch.Tensor) or memory_of(each) in memory for each in outputs],
        )

    def play(self, recording: Recording, inputs: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Run what was recorded."""
        if recording.copied:
            foreach_copy(recording.copies, [copied_part(inputs[at]) for at in recording.copied])
        recording.replay()
        torch.autograd.graph.increment_version([inputs[at] for at in self.written])
        pairs = zip(recording.outputs, recording.kept, strict=True)
        return [each if is_kept else each.detach().clone() for each, is_kept in pairs]


def memory_of(tensor: torch.Tensor) -> int:
    """Return the address of the memory that a tensor shares with its views."""
    return tensor.untyped_storage().data_ptr()


def copied_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return what is copied of a tensor that has elements: all memory from the first to the last, as one axis.

    So an element that is shown several times is written once. Where there is much else between the elements, as between
    the rows of a slice, it is the tensor itself.
    """
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach() if extent > 2 * tensor.numel() else tensor.detach().as_strided((extent,), (1,))


@final
class Recorded(Struct, frozen=True, kw_only=True):
    """A compiler of graphs that run as recordings: what it makes of another's.

    ``obstacles`` gets why a graph cannot be recorded, where that is known before it runs.
    """

    title: str
    compiler: Compile
    recorder: Recorder
    device: torch.device
    report: Report
    obstacles: list[str] = []

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
    inner = (node for part in graph.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes)
    for node in inner:
        if is_keyed(node):
            return f"`{node.name}` draws random numbers in a part that is computed again"
        if is_unsafe(node.target):
            return f"`{node.target}` says of itself that it must not be"
    for node in (each for each in graph.graph.nodes if each.users):
        found = node.meta.get("example_value")
        name = find_source(node) if node.op == "placeholder" else node.name
        if node.op == "placeholder" and not isinstance(found, torch.Tensor):
            return f"`{name}` is a number of Python"
        for each in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(each, torch.Tensor) and each.device.type != device.type:
                return f"`{name}` is a tensor on {'the host' if each.device.type == 'cpu' else each.device}"
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
