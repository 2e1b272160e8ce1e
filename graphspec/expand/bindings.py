"""Blocks become ops, second pass: the names in copied ops get their meaning.

A name in a block is that of an op or a value of the block, of an input that the use gives, or of a model or a state of
the document. Every op says itself which of its words are names of something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from graphspec.check.names import WANTED
from graphspec.declare.blocks import BlockSpec, ChooseOp, RepeatOp, SometimesOp, UseOp
from graphspec.declare.graph import find_kinds
from graphspec.declare.ops import KINDS
from graphspec.declare.ops.base import Reference
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.expand.copies import COMMON, Container, Expansion, Moved, Origin, Use, check_part, find_outer, name_outer
from graphspec.expand.parsed import PARTS, Uses, WrittenOps, find_following, parse_op
from graphspec.expand.parts import (
    ContainerOp,
    check_batches,
    check_repeated,
    cut_rows,
    describe_part,
    draws_rows,
    find_output_problem,
    give_output,
    has_rows,
    list_outputs,
)
from graphspec.expand.phases import WRITES
from graphspec.expand.plain import listed, put, rename_outputs
from graphspec.limits import MOST_PROBLEMS
from graphspec.read.source import Document, Path, Plain
from graphspec.words import closest, did_you_mean, enumerate_names, fix_name

MODELS = frozenset({"model", "source", "called", "adapted", "rate"})
"""What a reference may name that a block has not: models are the document's."""
UNSTOPPED = "{}.unstopped"
"""The name of a value whose own name its constant has taken."""
CLOCKS = frozenset({"every", "start", "until"})


def bind_uses(expansion: Expansion) -> Document:
    """Return the document with the names of all copies bound, and without the uses.

    Raises SpecError for uses that cannot be read or do not fit their block, and for names that a block does not know.
    """
    return _Binder(expansion).run() if expansion.uses or expansion.containers else expansion.document


class _Scope(Struct, frozen=True, kw_only=True):
    """What the names in a block, or in a part of a container, mean for one use of it."""

    use: Use
    block: BlockSpec | None
    """The block; None of a part, which reads everything outside."""
    op: UseOp | ContainerOp
    given: Mapping[str, Plain]
    """The common fields of the use, as they are written, its own names bound."""
    known: Mapping[str, str]
    """By the names of ops and values in the block: those of the copies."""
    inputs: Mapping[str, Plain] = {}
    stopped: Mapping[str, str] = {}
    """The outputs that are made constants, and the names of what they are made of."""
    within: tuple[Plain, ...] = ()
    """The parts that its ops belong to."""


class _Binder:
    """Binds the names of copies, use by use from the outside in."""

    def __init__(self, expansion: Expansion) -> None:
        self._expansion, self._document = expansion, expansion.document
        assert isinstance(self._document.data, dict)
        self._data = self._document.data
        ops = self._data["ops"]
        assert isinstance(ops, dict)
        self._ops = dict(ops)
        self._renamed: dict[str, str] = {}
        """By name, of ops and values whose name an op has that makes them constants."""
        self._made: dict[str, Plain] = {}
        """Ops that make outputs constants, outputs of parts, and parts of values, by their names."""
        self._inputs: dict[str, Plain] = {}
        """Inputs of batches before the last."""
        self._drawn: set[str] = set()
        """Draws that are parts of one draw."""
        self._origins: dict[str, Origin] = dict(expansion.origins)
        self._scopes: dict[str, _Scope] = {}
        self._copies: dict[str, list[str]] = {}
        """By use, the copies of the ops of its block."""
        self._below: dict[str, list[str]] = {}
        """By the names before a dot, all copies that begin with them: of a use also those of the uses in its block."""
        for name, use in expansion.copies.items():
            self._copies.setdefault(use.name, []).append(name)
            for dot in (at for at, character in enumerate(name) if character == "."):
                self._below.setdefault(name[:dot], []).append(name)
        self._containers = {each.name: each for each in expansion.containers}
        self._parts = {
            name: [use for use in expansion.uses if use.of is each] for name, each in self._containers.items()
        }
        self._unnamed = frozenset(
            name
            for name, use in expansion.copies.items()
            if isinstance(op := self._ops[name], dict)
            and op.get("expr", name) not in (name, name.removeprefix(f"{use.name}."))
        )
        """Parts of expressions, which nothing may name."""
        self._names = frozenset((*self._containers, *(use.name for use in expansion.uses)))
        """What becomes other ops."""
        writes = {
            name: use
            for name, use in expansion.copies.items()
            if isinstance(op := self._ops[name], dict) and not WRITES.isdisjoint(find_kinds(op))
        }
        self._writes = tuple(writes)
        self._writing = frozenset((*writes, *(name for use in writes.values() for name in name_outer(use))))
        """The ops that write, and those in which one does: uses of blocks, parts, and the ops that hold parts."""
        self._following = frozenset(find_following(writes, self._ops))
        """Averages and copies, each with the ops around it in which an update steps its source."""
        self._unsound: set[str] = set()
        """The uses of blocks that list outputs which they do not have; nothing is held against what reads these."""
        self._problems: list[Diagnostic] = []

    def run(self) -> Document:
        """Return the flat document."""
        for container in self._expansion.containers:
            check_part(PARTS[container.kind], {"ops": {container.name: self._ops[container.name]}}, self._document)
        # Iterations of different numbers of batches, and parts of parts of a batch.
        ops = {container.name: parse_op(self._ops[container.name]) for container in self._expansion.containers}
        repeats = {name: op for name, op in ops.items() if isinstance(op, RepeatOp)}
        around = {
            container.name: [use.of.name for use in find_outer(container.inside) if use.of is not None]
            for container in self._expansion.containers
        }
        for name, message, help in check_batches(repeats, around):
            self._report("GS069", message, ("ops", name, "batch"), help=help)
        for use in self._expansion.uses:
            inner = self._copies.get(use.name, [])
            self._scopes[use.name] = scope = self._open(use, inner) if use.of is None else self._open_part(use, inner)
            for name in inner:
                self._ops[name] = self._bind(name, scope)
            for name, stopped in scope.stopped.items():
                held = {
                    key: each for key, each in scope.given.items() if key != "after" and self._is_held(key, name, use)
                }
                self._make(name, {"call": "stop", "inputs": stopped, **held}, (use.path, use))
        for container in self._expansion.containers:
            self._give_outputs(container)
        outside = [name for name in self._ops if name not in self._expansion.copies and name not in self._names]
        for name in outside:
            op, written = parse_op(self._ops[name]), self._ops[name]
            if op is not None and isinstance(written, dict):
                for reference in op.references():
                    self._check_kept(reference, name)
                self._ops[name] = self._follow_uses(written)  # `after` a use is after all its ops
        if self._problems:
            raise SpecError(dict.fromkeys(self._problems[:MOST_PROBLEMS]), self._document.texts)
        gone = self._names | self._drawn
        kept = {self._renamed.get(name, name): op for name, op in self._ops.items() if name not in gone}
        data: dict[str, Plain] = {**self._data, "ops": {**kept, **self._made}}
        declared = self._data.get("inputs")
        if self._inputs and isinstance(declared, dict):
            data["inputs"] = {**declared, **self._inputs}
        for name, final in self._renamed.items():
            if name in self._origins:
                self._origins[final] = self._origins[name]
        return replace(self._document, data=data, places=Moved(self._expansion.places, self._origins))

    def _make(self, name: str, op: Plain, origin: Origin) -> None:
        """Add an op, which messages show at the place of another."""
        self._made[name] = op
        self._origins.setdefault(name, origin)

    def _open_part(self, use: Use, inner: list[str]) -> _Scope:
        """Return what the names in an iteration or alternative mean."""
        assert use.of is not None
        path: Path = ("ops", use.of.name)
        written = self._ops[use.of.name]
        op = parse_op(written)
        assert isinstance(written, dict)
        assert isinstance(op, RepeatOp | ChooseOp | SometimesOp)
        known = self._name_copies(use, inner)
        for index, value in enumerate(op.outputs if not isinstance(op, SometimesOp) else ()):
            made = parse_op(self._ops.get(known.get(value, "")))
            problem = find_output_problem(value, use, op, known, made)
            if problem is not None:
                message, label, help = problem
                self._unsound.add(use.of.name)
                self._report("GS069", message, (*path, "outputs", index), label=label, help=help)
        given = self._follow_uses({key: written[key] for key in COMMON if key in written})
        before = [*listed(given.get("after")), *self._find_written_before(use)]
        within = (*listed(written.get("within")), describe_part(use, op))
        return _Scope(
            use=use,
            block=None,
            op=op,
            given={**given, "after": before} if before else given,
            known={short: self._renamed.get(name, name) for short, name in known.items()},
            within=within,
        )

    def _find_written_before(self, use: Use) -> list[Plain]:
        """Return the ops of the iteration before one that write something."""
        if use.of is None or use.of.kind != "repeat" or use.number == 1:
            return []
        return [name for name in self._writes if name.startswith(f"{use.of.name}.{use.number - 1}.")]

    def _give_outputs(self, container: Container) -> None:
        """Add the ops that make the outputs of a container from those of its parts."""
        scopes = [self._scopes[use.name] for use in self._parts[container.name]]
        op = scopes[0].op
        assert not isinstance(op, UseOp)
        origin: Origin = container.path, container.inside
        held = self._held_by(container)
        for output in list_outputs(op):
            values: list[Plain] = [scope.known.get(output, output) for scope in scopes]
            if isinstance(op, SometimesOp):
                values[1] = name = f"{scopes[1].use.name}.{output}"
                otherwise: Plain = [*scopes[1].within]
                chosen: dict[str, Plain] = {"call": "either", "inputs": [op.else_[output]], **held, "within": otherwise}
                self._make(name, chosen, origin)
                if output not in scopes[0].known:
                    message = f"'{container.name}' has no value '{output}'"
                    self._report(
                        "GS069", message, ("ops", container.name, "else", output), help="name a value of its ops"
                    )
            name = f"{container.name}.{output}"
            self._make(self._renamed.get(name, name), {**give_output(op, values), **held}, origin)

    def _open(self, use: Use, inner: list[str]) -> _Scope:
        """Return what the names of a block mean for a use of it."""
        written = self._ops[use.name]
        check_part(Uses, {"ops": {use.name: written}}, self._document)
        assert isinstance(written, dict)
        op, block = UseOp.model_validate(written), self._expansion.blocks[use.block]
        path: Path = ("ops", use.name)
        known = self._name_copies(use, inner)
        for index, value in enumerate(block.outputs):
            if value not in known:
                message, label = f"the block '{use.block}' has no value '{value}'", did_you_mean(value, known)
                help = "name a value of its ops"
                self._unsound.add(use.name)
                self._report("GS064", message, ("blocks", use.block, "outputs", index), label=label, help=help)
        for index, name in enumerate(block.inputs or ()):
            if name in known:
                message = f"'{name}' is an input of the block '{use.block}', and an op or a value of it, too"
                self._report("GS064", message, ("blocks", use.block, "inputs", index), help="rename one of them")
        stopped: dict[str, str] = {}
        for short, name in known.items():
            known[short] = self._renamed.get(name, name)  # the use around this one makes it a constant
            if op.stop and short in block.outputs:
                stopped[known[short]] = self._renamed[name] = UNSTOPPED.format(known[short])
                known[short] = self._renamed[name]
        inputs = self._match_inputs(use, op, block, path)
        self._check_given(use, op, path)
        given = self._follow_uses({key: written[key] for key in COMMON if key in written})
        held = written.get("within")
        within = tuple(held) if isinstance(held, list) else ()
        return _Scope(
            use=use, block=block, op=op, given=given, known=known, inputs=inputs, stopped=stopped, within=within
        )

    def _name_copies(self, use: Use, inner: list[str]) -> dict[str, str]:
        """Return the names of copies by the names of their ops and values."""
        known: dict[str, str] = {}
        for name in inner:
            short = name.removeprefix(f"{use.name}.")
            known[short] = name
            parsed = parse_op(self._ops[name])
            values = parsed.defines(short) if parsed is not None else ()
            if isinstance(parsed, UseOp) and parsed.use in self._expansion.blocks:
                values = tuple(f"{short}.{value}" for value in self._expansion.blocks[parsed.use].outputs)
            elif isinstance(parsed, RepeatOp | ChooseOp | SometimesOp):
                values = tuple(f"{short}.{value}" for value in list_outputs(parsed))
            known |= {value: f"{use.name}.{value}" for value in values}
        return known

    def _check_given(self, use: Use, op: UseOp, path: Path) -> None:
        """Report inputs that nothing declares, and models in place of ones that no op of the block names."""
        for key, name in op.inputs.references():
            if use.inside is not None or name in self._declared:  # names within a block are known only later
                continue
            wanted, remedy = WANTED["value"], fix_name(name)
            message = f"`inputs` of op '{use.name}' names '{name}', which is not declared; expected {wanted.noun}"
            label = "" if remedy else did_you_mean(name, self._declared)
            self._report(wanted.code, message, (*path, "inputs", key), label=label, help=remedy or wanted.help)
        # Those of the blocks that it uses are among its copies.
        inner = (parse_op(self._ops[name]) for name in self._below.get(use.name, ()))
        named = dict.fromkeys(each.name for op in inner if op is not None for each in op.references())
        for key in op.models:
            if key not in named:
                message, models = f"no op of the block '{use.block}' names '{key}'", [*filter(self._models.get, named)]
                help = f"it names {enumerate_names(models)}" if models else "leave it out"
                place, label = (*path, "models", key), did_you_mean(key, models)
                self._report("GS064", message, place, label=label, help=help, at_key=True)

    @cached_property
    def _declared(self) -> frozenset[str]:
        """All names of the document, in any role, and the outputs of its uses."""
        names = [*self._models]
        for section in ("inputs", "state"):
            found = self._data.get(section)
            names += found if isinstance(found, dict) else ()
        for name, data in self._ops.items():
            op = parse_op(data)
            names += (name, *(op.defines(name) if op is not None else ()))
        for use in (use for use in self._expansion.uses if use.block):
            names += (f"{use.name}.{value}" for value in self._expansion.blocks[use.block].outputs)
        for name in self._containers:
            op = parse_op(self._ops[name])
            if isinstance(op, RepeatOp | ChooseOp | SometimesOp):
                names += (f"{name}.{value}" for value in list_outputs(op))
        return frozenset(names)

    def _match_inputs(self, use: Use, op: UseOp, block: BlockSpec, path: Path) -> Mapping[str, Plain]:
        """Return what a use gives by the names of the block's inputs; report what is missing, and what it has not."""
        found: dict[str, Plain] = {}
        names = tuple(block.inputs or ())
        takes = f"'{use.block}' takes {enumerate_names(names)}" if names else f"'{use.block}' takes no inputs"
        data = self._ops[use.name]
        written = data.get("inputs") if isinstance(data, dict) else None
        given: dict[int | str, Plain] = {} if written is None else {0: written}
        if isinstance(written, dict):
            given = {**written}
        elif isinstance(written, list):
            given = dict[int | str, Plain](enumerate(written))
        for key, operand in given.items():
            if isinstance(key, int) and key >= len(names):
                message = f"the block '{use.block}' has no input number {key + 1}"
                self._report("GS064", message, (*path, "inputs", key), help=takes)
                continue
            name = names[key] if isinstance(key, int) else key
            if name not in names:
                message, label = f"the block '{use.block}' has no input '{name}'", did_you_mean(name, names)
                self._report("GS064", message, (*path, "inputs", key), label=label, help=takes, at_key=True)
                found |= dict.fromkeys(closest(name, names, 1), operand)
            found[name] = operand
        for name in names:
            if name not in found:
                message = f"'{use.name}' does not give the input '{name}' of the block '{use.block}'"
                self._report("GS064", message, (*path, "inputs"), help=takes)
        return found

    def _bind(self, name: str, scope: _Scope) -> Plain:
        """Return a copied op with its names bound, and with the common fields of its use."""
        op, data = parse_op(self._ops[name]), self._ops[name]
        if op is None or not isinstance(data, dict):
            try:  # its names are not bound, so nothing else is checked
                check_part(WrittenOps, {"ops": {name: data}}, self._document)
            except SpecError as error:
                self._problems.extend(error.diagnostics)
            return data
        for reference in op.references():
            made = put(data, reference.path, self._resolve(reference, name, scope))
            assert isinstance(made, dict)
            data = made
        data = self._follow_uses(data)
        if isinstance(op, UseOp):  # what a use replaces is replaced in the blocks that it holds, too
            named, around = data.get("models"), scope.op.models if isinstance(scope.op, UseOp) else {}
            inner = named if isinstance(named, dict) else {}
            models: dict[str, Plain] = {**around, **{key: inner[key] for key in op.models}}
            held: dict[str, Plain] = {**data, "models": models}
            data = held
        if "outputs" in data and name not in self._containers:
            data = {**data, "outputs": rename_outputs(data["outputs"], scope.known)}
        if isinstance(expr := data.get("expr"), str):
            data = {**data, "expr": scope.known[expr]}
        if scope.within:
            inside: dict[str, Plain] = {**data, "within": [*scope.within]}
            data = inside
        given = {key: each for key, each in scope.given.items() if self._is_held(key, name, scope.use)}
        for use in find_outer(scope.use):
            if isinstance(repeat := self._scopes[use.name].op, RepeatOp) and op.kind in KINDS:
                written = use.name.split(".")[-2], name.rpartition(".")[2]  # 'r' and 'e' of 'r.1.e'
                for message, path, help in check_repeated(written[1], written[0], parse_op({**given, **data}) or op):
                    self._report("GS069", message, ("ops", name, *path), help=help)
                data = self._repeat(name, data, use, repeat)
        for key, value in given.items():
            if key == "after":
                after: list[Plain] = [*listed(data.get("after")), *listed(value)]
                following: dict[str, Plain] = {**data, "after": after}
                data = following
            elif key in data:
                short = name.removeprefix(f"{scope.use.name}.")
                message = f"`{key}` of '{scope.use.name}' holds for all ops of its block, but '{short}' has its own"
                self._report("GS064", message, ("ops", scope.use.name, key), help="write it once", at_key=True)
            else:
                data = {**data, key: value}
        return data

    def _is_held(self, field: str, name: str, use: Use) -> bool:
        """Return whether a common field of a use holds for an op of its block.

        A clock is for the ops that write, if there are some. The others run where these need them: with a clock of its
        own a loss would be a lazy term. What follows an update of its block needs no `every`: it would count the writes
        of that, and follow every second one of an update that is applied in every second step. The update may be in
        another part of what has the `every`: the outermost that has it, from which the parts inside have theirs.
        """
        if field == "every":
            having = [each.op for each in find_outer(use) if field in self._scopes[each.name].given]
            if (name, having[-1]) in self._following:
                return False
        return field not in CLOCKS or use.name not in self._writing or name in self._writing

    def _resolve(self, reference: Reference, name: str, scope: _Scope) -> Plain:
        """Return what a name in a block, or in a part, means for a use of it."""
        if reference.name in scope.known:
            return scope.known[reference.name]
        if scope.block is None or not isinstance(scope.op, UseOp):  # a part reads everything outside
            around = None if scope.use.inside is None else self._scopes[scope.use.inside.name]
            if around is None:
                self._check_kept(reference, name)
            value = reference.name if around is None else self._resolve(reference, name, around)
            return self._find_rows(reference, value, scope)
        if reference.name in scope.inputs:
            return scope.inputs[reference.name]
        if reference.role in MODELS or reference.name in self._models:
            return scope.op.models.get(reference.name, reference.name)
        states = self._data.get("state")
        is_state = reference.role == "state" or (isinstance(states, dict) and reference.name in states)
        if is_state or reference.name in scope.block.inputs:
            return reference.name
        message = f"the block '{scope.use.block}' has no '{reference.name}'"
        label = did_you_mean(reference.name, (*scope.known, *scope.inputs))
        help = "a block reads its inputs and its own ops: add it to `inputs`, and let every use give it"
        self._report("GS065", message, ("ops", name, *reference.path), label=label, help=help)
        return reference.name

    def _find_rows(self, reference: Reference, value: Plain, scope: _Scope) -> Plain:
        """Return what an iteration reads of a value from outside: all of it, a part of its rows, or another batch."""
        op, use = scope.op, scope.use
        if reference.role not in ("value", "target") or reference.name in self._models or not isinstance(value, str):
            return value
        if not isinstance(op, RepeatOp) or op.batch == "reuse" or use.of is None or not has_rows(value, self._data):
            return value
        declared = self._data.get("inputs")
        if op.batch == "split":
            self._cut(use.of, op, value, reference.name, (use.of.path, use.of.inside))
            return f"{use.name}.{reference.name}"
        if not isinstance(declared, dict) or value not in declared or use.number == op.most:
            return value  # what is made outside of the block is made of the last batch
        earlier, fields = f"batch_{use.number}.{value}", declared[value]
        self._inputs[earlier] = {**(fields if isinstance(fields, dict) else {}), "of": value, "batch": use.number}
        return earlier

    def _held_by(self, container: Container) -> dict[str, Plain]:
        """Return the fields of a container that hold for what its parts are made of."""
        whole = self._ops[container.name]
        assert isinstance(whole, dict)
        fields = {key: each for key, each in whole.items() if key in ("mode", "dataset", "within")}
        return {"mode": "train", **fields} if whole.get("batch") == "next" else fields

    def _repeat(self, name: str, data: dict[str, Plain], use: Use, op: RepeatOp) -> dict[str, Plain]:
        """Return an op as it is in an iteration: its draws have the rows of the iteration."""
        assert use.of is not None
        if op.batch == "next":
            return {"mode": "train", **data}
        if op.batch != "split" or not draws_rows(data):
            return data
        if data["random"] == "permutation":
            message = f"'{name.rpartition('.')[2]}' permutes the rows of the batch, of which an iteration has a part"
            self._report("GS069", message, ("ops", name, "random"), help="draw it outside, or write `batch: reuse`")
        short = name.removeprefix(f"{use.name}.")
        whole, origin = f"{use.of.name}.whole.{short}", self._origins[name]
        fields = {key: each for key, each in data.items() if key not in ("after", "within")}
        self._make(whole, {**fields, **self._held_by(use.of)}, origin)
        self._cut(use.of, op, whole, short, origin)
        self._drawn.add(name)
        return data

    def _cut(self, of: Container, op: RepeatOp, value: Plain, short: str, origin: Origin) -> None:
        """Make the ops that cut the rows of a value into those of every iteration, `passes.2.x`."""
        for name, made in cut_rows(value, short, self._parts[of.name], op, self._held_by(of)).items():
            self._make(name, made, origin)

    @property
    def _models(self) -> Mapping[str, Plain]:
        models = self._data.get("models")
        return models if isinstance(models, dict) else {}

    def _check_kept(self, reference: Reference, name: str) -> None:
        """Report a value that a block or a container keeps to itself."""
        use, _, inner = reference.name.partition(".")
        if use not in self._names or reference.role in ("op", "update") or use in self._unsound:
            return
        block = self._scopes[use].block if use in self._scopes else None
        op = parse_op(self._ops[use])
        outputs = list_outputs(op) if isinstance(op, RepeatOp | ChooseOp | SometimesOp) else ()
        whose, verb = f"'{use}'", "holds other ops, and is no value itself"
        if block is not None:
            outputs, whose, verb = block.outputs, "its block", "uses a block, and is no value itself"
        if inner not in outputs:
            message = f"'{inner}' of '{use}' is not an output of {whose}" if inner else f"'{use}' {verb}"
            gives = "the block gives" if block is not None else "it gives"
            missing = f"add `else: {{{inner or 'value'}: ...}}`, with what it is in the steps without the part"
            add = missing if isinstance(op, SometimesOp) else "add `outputs`"
            help = f"{gives} {enumerate_names(f'{use}.{each}' for each in outputs)}" if outputs else add
            label = did_you_mean(inner, outputs) if inner else ""
            self._report("GS065", message, ("ops", name, *reference.path), label=label, help=help)

    def _follow_uses(self, data: dict[str, Plain]) -> dict[str, Plain]:
        """Return an op that is after all ops of a use, or of the last iteration, where it is after these."""
        written = listed(data.get("after"))
        if self._names.isdisjoint(each for each in written if isinstance(each, str)):
            return data
        after: list[Plain] = []
        for each in written:
            if not isinstance(each, str) or each not in self._names:
                after.append(each)
                continue
            parts = [use.name for use in self._parts.get(each, ())]
            starts = tuple(
                f"{name}."
                for name in (parts[-1:] if parts and self._containers[each].kind == "repeat" else parts or [each])
            )
            copies = [name for name in self._expansion.copies if name.startswith(starts)]
            after += [
                self._renamed.get(name, name)
                for name in copies
                if name not in self._names | self._drawn | self._unnamed
            ]
        return {**data, "after": after}

    def _report(self, code: str, message: str, path: Path, *, help: str, label: str = "", at_key: bool = False) -> None:
        document = self._document
        span = document.key_span(path) if at_key else document.value_span(path)
        self._problems.append(Diagnostic(code=code, message=message, span=span, label=label, help=help))
