"""Declare in Python what a document declares: every section and every kind of op by the methods of a graph."""

from __future__ import annotations

from collections.abc import Mapping

from graphspec import Graph, GraphSpec
from graphspec.declare.graph import find_kinds
from graphspec.python.values import Average, Derived, Model, Value
from graphspec.write.render import to_plain

HEADER = ("seed", "rng", "precision", "micro_batches")
FOOTER = ("outputs", "data", "run")
MODELS = ("model", "source", "called", "adapted")
"""Roles of names that are models."""


class _Later(Exception):
    """An op reads what is not declared yet."""


class Rebuilder:
    """Calls the methods of a graph for a document."""

    def __init__(self, spec: GraphSpec) -> None:
        self.spec, self.plain = spec, to_plain(spec)
        self.graph = Graph(self.plain["name"], **{key: self.plain[key] for key in HEADER if key in self.plain})
        self.values: dict[str, Value] = {}
        self.models: dict[str, Model] = {}

    def run(self) -> GraphSpec:
        for name, each in self.plain.get("inputs", {}).items():
            self.values[name] = self.graph.input(name, each.get("shape"), each.get("dtype"))
        for name, each in self.plain.get("state", {}).items():
            rest = {key: each[key] for key in ("dtype", "init") if key in each}
            self.values[name] = self.graph.state(name, each["shape"], **rest)
        for name, each in self.plain.get("models", {}).items():
            fields = {"class_" if key == "class" else key: value for key, value in each.items()}
            self.models[name] = self.graph.model(name, **fields)
        waiting = dict(self.plain["ops"])
        while waiting:
            before = len(waiting)
            for name, op in list(waiting.items()):
                try:
                    self.add(name, dict(op))
                except _Later:
                    continue
                del waiting[name]
            assert len(waiting) < before, waiting
        return self.graph.build(**{key: self.plain[key] for key in FOOTER if key in self.plain})

    def value(self, name):
        if isinstance(name, str) and name not in self.values:
            raise _Later(name)
        return self.values[name] if isinstance(name, str) else name

    def model(self, name):
        if name not in self.models:
            raise _Later(name)
        return self.models[name]

    def many(self, names, find):
        return [find(each) for each in names] if isinstance(names, list) else find(names)

    def inputs(self, op):
        inputs = op.pop("inputs", [])
        if isinstance(inputs, dict) and "schedule" not in inputs:
            return (), {"keywords": {key: self.value(each) for key, each in inputs.items()}}
        return [self.value(each) for each in (inputs if isinstance(inputs, list) else [inputs])], {}

    def add(self, name, op):
        kind = "expr" if "expr" in op else find_kinds(op)[0]
        what, outputs = op.pop(kind), op.pop("outputs", None)
        listed = outputs if isinstance(outputs, list) else [outputs]
        many = {} if outputs is None else {"outputs": listed}
        match kind:
            case "forward":
                model = self.model(what)
                inputs, more = self.inputs(op)
                found = model(*inputs, name=name, **more, **many, **op)
            case "call" | "loss" | "metric" | "transform":
                inputs, more = self.inputs(op)
                found = getattr(self.graph, kind)(what, *inputs, name=name, **more, **many, **op)
            case "expr":
                found = self.graph.expr(what, name=name, **many, **op)
            case "random":
                like = {"like": self.value(op.pop("like"))} if "like" in op else {}
                args = op.pop("args", {})
                found = getattr(self.graph, what)(name, op.pop("shape", None), **like, **args, **op)
            case "schedule":
                found = self.graph.schedule(
                    what, name=name, **{f"{k}_" if k == "from" else k: v for k, v in op.items()}
                )
            case "gradient":
                wrt = self.many(op.pop("wrt"), lambda each: self.models.get(each) or self.value(each))
                found = self.graph.gradient(self.text(what), wrt, name=name, **many, **op)
            case "update":
                rest = {key: self.text(op.pop(key)) for key in ("loss",) if key in op}
                rest |= {key: self.many(op.pop(key), self.value) for key in ("gradients",) if key in op}
                found = self.graph.update(self.many(what, self.model), name=name, **rest, **op)
            case "adapt":
                rest = {key: self.text(op.pop(key)) for key in ("loss",) if key in op}
                rest |= {key: self.value(op.pop(key)) for key in ("gradients",) if key in op}
                rate = op.pop("lr")
                rest["lr"] = self.model(rate) if isinstance(rate, str) else rate
                found = self.graph.adapt(self.model(what), name=name, **rest, **op)
            case _:  # a method whose arguments are the fields, with models and values in place of their names
                for each in self.spec.ops[name].operands():
                    assert each.path in ((kind,), *((field,) for field in op)), f"how is {kind} declared in Python?"
                    found = self.model(each.name) if each.role in MODELS else self.value(each.name)
                    what, op = (found, op) if each.path == (kind,) else (what, {**op, each.path[0]: found})
                found = getattr(self.graph, kind)(what, name=name, **op)
        if isinstance(found, Average | Derived):
            self.models[name] = found
        elif isinstance(found, tuple):
            names = [next(iter(each)) if isinstance(each, Mapping) else each for each in listed]
            self.values |= dict(zip(names, found, strict=True))
        elif isinstance(found, Value):
            self.values[name] = found

    def text(self, loss):
        """Return a value, or the text of an expression."""
        return self.value(loss) if loss.replace(".", "_").isidentifier() and not loss.endswith(".loss") else loss
