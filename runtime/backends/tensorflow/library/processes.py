"""Replicas: the devices of a strategy, each with all weights and its own rows of the batch, that take one step.

All of them run one function without branches, so that they meet in every collective in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.missing import Maybe, number_of
from runtime.backends.tensorflow.library.parts import part_sizes
from runtime.backends.tensorflow.library.tracing import Compiled
from runtime.backends.tensorflow.library.windows import Window


class Message:
    """What all replicas have of some values; the graph waits for it where it is used."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts

    def wait(self, place: int) -> Any:
        """Return what all replicas have of the value that was sent at a place."""
        return self.parts[place]


class Replicas:
    """The replicas of the strategy in whose scope it is made; outside of any there is one.

    ``bucket_mb``: about how many megabytes of gradients travel in one collective, where processes exchange them.
    """

    def __init__(self, device: str, *, bucket_mb: float | None = None) -> None:
        self.strategy = tf.distribute.get_strategy()
        self.count: int = self.strategy.num_replicas_in_sync
        self.local = len(self.strategy.extended.worker_devices) if self.count > 1 else 1  # those of this process
        size = 0 if bucket_mb is None else max(1, round(1e6 * bucket_mb))
        self.options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=size)
        self.graphs: dict[tuple[int, ...], Any] = {}  # those that read and write windows
        self.rows: dict[int, tf.Tensor] = {}  # how many rows of the batch each has, as each of them knows

    def begin(self, rows: tf.Tensor, parts: int = 1) -> None:
        """Begin a step with so many rows here: tell all of them; fail where one has fewer than ``parts``."""
        own = tf.one_hot(find_rank(), self.count, tf.cast(rows, tf.int64), 0, dtype=tf.int64)
        (all_of,) = self.add_up([own])
        message = f"some replica has fewer rows of the batch than it needs, which are {parts}"
        enough = tf.debugging.assert_greater_equal(all_of, tf.constant(parts, tf.int64), message)
        with tf.control_dependencies([enough]):
            self.rows[find_rank()] = tf.identity(all_of)

    @property
    def known(self) -> tf.Tensor:
        """Return how many rows of the batch each replica has in this step."""
        return self.rows[find_rank()]

    @property
    def batch_size(self) -> tf.Tensor:
        """Return the rows of all, an int32."""
        return tf.cast(tf.reduce_sum(self.known), tf.int32)

    def key(self, op: str) -> str:
        """Return the key of an op's draws on the rows of this replica; the first has that of one process."""
        rank = find_rank()
        return f"{op}@{rank}" if rank else op

    def share(self, x: tf.Tensor) -> tf.Tensor:
        """Return the share of all rows that this replica has; ``x``: the input that counts them."""
        return self.shares(x, 1)[0]

    def shares(self, x: tf.Tensor, count: int, axis: int = 0) -> tuple[tf.Tensor, ...]:
        """Return the share of all rows that each of the micro-batches of this replica has, the larger ones first."""
        rows = tf.shape(x)[axis] if count > 1 else self.known[find_rank()]
        sizes = part_sizes(tf.cast(rows, tf.int32), count)
        return tuple(tf.unstack(tf.cast(sizes, tf.float64) / tf.cast(tf.reduce_sum(self.known), tf.float64), count))

    def own_rows(self, whole: tf.Tensor, axis: int = 0) -> tf.Tensor:
        """Return the rows of this replica of a value that has the rows of all, in the order of replicas."""
        if self.count == 1:
            return whole
        sizes = tf.shape(whole, tf.int64)[axis] * self.known // tf.reduce_sum(self.known)
        return tf.split(whole, sizes, axis, num=self.count)[find_rank()]

    def join_rows(self, whole: tf.Tensor, own: tf.Tensor, axis: int = 0) -> tf.Tensor:
        """Return the rows of all, where ``own`` are those of this replica; the gradient of a share of one loss."""
        return attached(own, whole, lambda gradient: self.own_rows(gradient, axis) / self.shared_by(gradient))

    def join_sum(self, whole: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
        """Return the sum of all, where ``own`` is the term of this replica; the gradient of a share of one loss."""
        return attached(own, whole, lambda gradient: gradient / self.shared_by(gradient))

    def shared_by(self, gradient: tf.Tensor) -> tf.Tensor:
        """Return the share of all rows that this replica has, in the type of a gradient."""
        return tf.cast(self.share(gradient), gradient.dtype)

    def start_sum(self, *parts: Any) -> Message:
        """Add up numbers and gradient sets over all replicas, in one collective for each type of number.

        Of a truth value, such as a verdict, all have whether it is true everywhere.
        """
        flat = [each for part in parts for each in (part if is_set(part) else (part,))]
        own = {at: number_of(each) for at, each in enumerate(flat) if each is not None}
        own = {at: tf.stop_gradient(tf.convert_to_tensor(each)) for at, each in own.items()}
        sent = {at: tf.cast(~each, tf.float32) if each.dtype == tf.bool else each for at, each in own.items()}
        found: list[Any] = list(flat)
        for dtype in dict.fromkeys(each.dtype for each in sent.values()):
            places = [at for at, each in sent.items() if each.dtype == dtype]
            for at, total in zip(places, self.add_up([sent[at] for at in places]), strict=True):
                total = total == 0 if own[at].dtype == tf.bool else total
                found[at] = Maybe(total, flat[at].seen) if isinstance(flat[at], Maybe) else total
        values = iter(found)
        return Message([tuple(next(values) for _ in part) if is_set(part) else next(values) for part in parts])

    def add_up(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the sums over all replicas of tensors of one type."""
        if self.count == 1:
            return list(tensors)
        context = tf.distribute.get_replica_context()
        totals = context.all_reduce(tf.distribute.ReduceOp.SUM, list(tensors), options=self.options)
        return [tf.ensure_shape(total, each.shape) for total, each in zip(totals, tensors, strict=True)]

    def start_gather(self, *parts: tuple[tf.Tensor, int]) -> Message:
        """Gather rows in the order of replicas, each with the axis along which they lie; as :meth:`start_sum`."""
        return Message([self.gather(tf.stop_gradient(each), axis) for each, axis in parts])

    def gather(self, x: tf.Tensor, axis: int) -> tf.Tensor:
        """Return the rows of all replicas."""
        if self.count == 1:
            return x
        sent = tf.cast(x, tf.int32) if x.dtype == tf.bool else x
        shape = [None if at == axis else size for at, size in enumerate(x.shape)]
        whole = tf.distribute.get_replica_context().all_gather(sent, axis, options=self.options)
        return tf.ensure_shape(tf.cast(whole, x.dtype), shape)

    def share_buffers(self, buffers: Sequence[Any], how: str) -> None:
        """Give all replicas the buffers of the first ("rank0"), or their mean; whole numbers are the first's."""
        for dtype in dict.fromkeys(each.dtype for each in buffers) if self.count > 1 else ():
            chosen = [each for each in buffers if each.dtype == dtype]
            is_mean = how == "mean" and dtype.is_floating
            kind = tf.int32 if dtype == tf.bool else dtype
            values = [tf.cast(each.read_value(), kind) for each in chosen]
            kept = [each if is_mean or not find_rank() else tf.zeros_like(each) for each in values]
            for each, total in zip(chosen, self.add_up(kept), strict=True):
                each.assign(total / self.count if is_mean else tf.cast(total, dtype))

    def read_sums(self, variables: Sequence[Any]) -> tuple[tf.Tensor, ...]:
        """Return the sums over all replicas of variables of which each has its own."""
        found = self.run(tuple(variables), lambda _: self.start_sum([each.read_value() for each in variables]).wait(0))
        return tuple(found)

    def write_sum(self, variable: Any, value: Any) -> None:
        """Give the first replica a value, and the others zeros, of which it is the sum."""
        given = tf.convert_to_tensor(value, variable.dtype)
        self.run((variable,), lambda first: variable.assign(tf.zeros_like(first) if find_rank() else first), given)

    def run(self, variables: Sequence[Any], function: Callable[[Any], Any], given: Any = None) -> Any:
        """Return what the first replica here gets from a function on given tensors, a graph for each use of variables.

        Outside of a graph strategies run slowly.
        """

        def graph(given: Any) -> Any:
            """Run it."""
            found = self.strategy.run(function, (given,))
            return tf.nest.map_structure(lambda value: self.strategy.experimental_local_results(value)[0], found)

        key = given is None, *map(id, variables)
        self.graphs.setdefault(key, tf.function(graph, autograph=False))
        return self.graphs[key](given)


class OnEach(Compiled):
    """A step function as a graph that every replica runs, and that gives what the first one here does.

    ``axes``: the inputs of which each replica has its own rows, and where these lie. A batch is that of this process:
    its replicas have contiguous parts, the larger ones first.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Mapping[str, tf.TensorSpec],
        replicas: Replicas,
        axes: Mapping[str, int],
        **options: Any,
    ) -> None:
        self.strategy, self.local, self.axes = replicas.strategy, replicas.local, dict(axes)
        super().__init__(function, inputs, **options)

    def run(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """Run the function as Python on the device of each replica; tracing does."""
        batch = dict(zip(self.inputs, tensors, strict=False))
        with tf.device(self.device):
            chosen = [name for name in self.axes if self.local > 1]
            divided = {name: divide_rows(batch[name], self.local, self.axes[name]) for name in chosen}
        shares = [{**batch, **{name: each[at] for name, each in divided.items()}} for at in range(self.local)]

        def take_part(*number: tf.Tensor) -> dict[str, tf.Tensor]:
            """Run the function on the rows of a replica."""
            return self.function(shares[find_rank() % self.local], *number)

        found = self.strategy.run(take_part, tensors[len(batch) :])
        return {name: self.strategy.experimental_local_results(value)[0] for name, value in found.items()}


def on_each(
    function: Callable[..., Any],
    inputs: Mapping[str, tf.TensorSpec],
    replicas: Replicas,
    *,
    axes: Mapping[str, int],
    device: str,
    numbered: bool = False,
    jit_compile: bool = False,
) -> OnEach:
    """Return a step function as a graph that every replica runs on its own rows; as :func:`compiled`."""
    return OnEach(function, inputs, replicas, axes, device=device, numbered=numbered, jit_compile=jit_compile)


class OwnWindow(Window):
    """A window of which every replica has its own; replicas are traced in turns, so each keeps its own begin."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self.begins: dict[int, Any] = {}
        super().__init__(*given, **options)

    @property
    def before(self) -> Any:
        """Return what it begins with on the replica that is being traced."""
        return self.begins.get(find_rank(), [])

    @before.setter
    def before(self, held: Any) -> None:
        """Keep what it begins with."""
        self.begins[find_rank()] = held


def attached(own: tf.Tensor, whole: tf.Tensor, back: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Return what all replicas have of a value, whose gradient goes back to what this one has.

    Every replica differentiates its share of one loss: the loss times its fraction of all rows. Divided by that, what
    arrives is the gradient of the loss.
    """

    @tf.custom_gradient
    def join(own: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        """Return the whole, and the gradient of what this replica has."""
        return tf.identity(whole), back

    found: Any = join(own)  # the decorator gives the first of the two alone
    return found


def find_rank() -> int:
    """Return the number of the replica whose function is being traced; 0 outside of any."""
    context = tf.distribute.get_replica_context()
    return 0 if context is None else int(tf.get_static_value(context.replica_id_in_sync_group))


def is_set(part: Any) -> bool:
    """Return whether a part of a message is a gradient set."""
    return isinstance(part, (tuple, list))


def divide_rows(x: tf.Tensor, count: int, axis: int) -> list[tf.Tensor]:
    """Return contiguous parts of a batch, the larger ones first, whose sizes are not known when a graph is traced."""
    split = tf.split(x, part_sizes(tf.shape(x)[axis], count), axis, num=count)
    shape = None if x.shape.rank is None else [None if at == axis else size for at, size in enumerate(x.shape)]
    return split if shape is None else [tf.ensure_shape(each, shape) for each in split]
