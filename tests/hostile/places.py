"""Every place of a spec where a text may stand, made from the JSON Schema: new fields are among them by themselves."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphspec.write.jsonschema import build_schema

SCHEMA = build_schema()
KEY = "a_key"
SPEC: Mapping[str, object] = {
    "graphspec": 1,
    "name": "small",
    "inputs": {"x": {"shape": ["batch", 4]}},
    "state": {"held": {"shape": [2]}},
    "models": {"net": {"layers": [{"linear": 4}], "optimizer": "sgd"}, "other": {"like": "net"}},
    "blocks": {"half": {"inputs": KEY, "outputs": "z", "ops": {"z": {"call": "mul", "inputs": [KEY, 0.5]}}}},
    "ops": {
        "y": {"forward": "net", "inputs": "x"},
        "far": {"loss": "mse", "inputs": ["y", 0.0]},
        "fit": {"update": "net", "loss": "far"},
        "slope": {"gradient": "far", "wrt": "net"},
    },
}
SAMPLES: Mapping[str, object] = {
    "forward": "user", "call": "zoo:make", "loss": "far", "metric": "zoo:seen", "transform": "zoo:clip",
    "wrt": "net", "update": "net", "ema": "net", "copy": "net", "into": "other", "inputs": "x", "assign": "held",
    "value": "x", "class": "zoo:Net", "source": "digits", "match": "weight", "until": "5 steps", "shape": [2],
    "schedule": "constant", "metric_": "far", "random": "normal", "like": "x", "decay": 0.9, "every": 2,
    "name": "sgd", "gradient": "far",
}  # fmt: skip
"""What stands in required fields, by their names: most of them name something of the spec."""
OF_OPS: Mapping[str, Mapping[str, object]] = {
    "LossOp": {"loss": "zoo:error", "inputs": "y"},
    "TransformOp": {"transform": "zoo:clip", "inputs": "slope"},
    "RandomOp": {"random": "normal", "like": "x"},
    "EmaOp": {"ema": "net", "decay": 0.9},
    "UpdateOp": {"update": "net", "loss": "far"},
    "ScheduleOp": {"schedule": "constant", "value": 1.0},
    "MetricOp": {"metric": "zoo:seen", "inputs": "far"},
    "ModelSpec": {"class": "zoo:Net"},
    "DataSource": {"source": "digits", "batch": 2},
    "UseOp": {"use": "half", "inputs": "x"},
    "ConstraintSpec": {"clip": [-1, 1]},
    "RegularizerSpec": {"l2": 0.5},
    "GroupSpec": {"match": "weight", "lr_scale": 2.0},
    "OptimizerSpec": {"class": "zoo:Rule"},
}
"""What a declaration has besides, so that most of its fields make a sound spec."""
Part = str | int
Node = Mapping[str, object]


@dataclass(frozen=True)
class Place:
    """A place for a text: the path to it, whether it is a key there, and what stands in the mappings on the way."""

    path: tuple[Part, ...]
    is_key: bool
    beside: tuple[tuple[tuple[Part, ...], str], ...]

    @property
    def title(self) -> str:
        return ".".join(map(str, self.path)) + (" (key)" if self.is_key else "")


def find_places() -> Iterator[Place]:
    """Yield every place of every declaration, each declaration at the first place where it may stand."""
    seen: set[str] = set()
    pending: list[tuple[Node, tuple[Part, ...], tuple[tuple[tuple[Part, ...], str], ...]]] = [(SCHEMA, (), ())]
    done: set[tuple[tuple[Part, ...], bool, bool]] = set()
    while pending:
        node, path, beside = pending.pop(0)
        reference = node.get("$ref")
        if isinstance(reference, str):
            name = reference.removeprefix("#/$defs/")
            if name == "Variable" or (name in seen and name != "Inputs"):
                continue
            seen.add(name)
            pending.append((SCHEMA["$defs"][name], path, (*beside, (path, name))))
            continue
        for branch in (*node.get("anyOf", ()), *node.get("oneOf", ())):
            if isinstance(branch, dict):
                pending.append((branch, path, beside))
        # What a use gives a block stands where the inputs of other ops do, but may have other keys.
        of_use = any(name == "UseInputs" for _, name in beside)
        kinds = node.get("type", ())
        if "string" in ([kinds] if isinstance(kinds, str) else kinds) or "enum" in node or "const" in node:
            found = Place(path, False, beside)
            if (path, False, of_use) not in done and path:
                done.add((path, False, of_use))
                yield found
        for key, inner in node.get("properties", {}).items():
            pending.append((inner, (*path, key), beside))
        extra = node.get("additionalProperties")
        if isinstance(extra, dict) or extra is True or "patternProperties" in node or "propertyNames" in node:
            if (path, True, of_use) not in done:
                done.add((path, True, of_use))
                yield Place(path, True, beside)
            inner = extra if isinstance(extra, dict) and extra else {"type": "string"}
            pending.append((inner, (*path, KEY), beside))
        if isinstance(node.get("items"), dict):
            pending.append((node["items"], (*path, 0), beside))
        for entry in node.get("prefixItems", ()):
            pending.append((entry, (*path, 0), beside))


def write(place: Place, text: str) -> str:
    """Return a spec, as JSON, with a text at a place."""
    spec = copy.deepcopy(dict(SPEC))
    spec["models"]["user"] = {"class": "zoo:Net", "optimizer": "sgd"}
    for path, name in place.beside:
        _fill(spec, path, name)
    target = _reach(spec, place.path if place.is_key else place.path[:-1])
    if place.is_key:
        target[text] = target.pop(KEY, "x" if place.path[-1:] == ("inputs",) else 1)
    else:
        target[place.path[-1]] = text
    return json.dumps(spec, indent=1)


def _fill(spec: dict, path: tuple[Part, ...], name: str) -> None:
    """Put what a declaration needs at a path."""
    definition = SCHEMA["$defs"][name]
    needed = {field: SAMPLES.get(field, 1) for field in definition.get("required", ())}
    known = {field: value for field, value in needed.items() if field in SAMPLES}
    given = OF_OPS.get(name) or known
    if given and path:
        holder = _reach(spec, path[:-1])
        old = holder[path[-1]] if path[-1] in holder or isinstance(holder, list) else None
        holder[path[-1]] = {**given} if not isinstance(old, dict) else {**old, **given}


def _reach(spec: dict, path: tuple[Part, ...]) -> dict | list:
    """Return what stands at a path, made where there is nothing."""
    target: object = spec
    for part, following in zip(path, (*path[1:], ""), strict=False):
        fresh: object = [None] if isinstance(following, int) else {}
        if isinstance(target, list):
            if not isinstance(target[0], dict | list):
                target[0] = fresh
            target = target[0]
        else:
            old = target.get(part)
            if not isinstance(old, list if isinstance(following, int) else dict):
                target[part] = fresh
            target = target[part]
    return target
