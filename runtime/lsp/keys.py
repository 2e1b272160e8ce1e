"""The keys of the language and what may stand under them, from its JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TypeAlias, cast

from graphspec.declare.blocks import CONTAINERS
from graphspec.declare.graph import find_kinds
from graphspec.declare.ops import KINDS
from graphspec.read.source import Path, Plain
from runtime.lsp.cursor import MARK
from runtime.lsp.names import look

Node: TypeAlias = Mapping[str, object]
_SPECIAL = {**{key: kind.__name__ for key, kind in CONTAINERS.items()}, "expr": "FormulaOp"}
_OPS = frozenset({*(kind.__name__ for kind in KINDS.values()), *_SPECIAL.values()})


@cache
def read_schema() -> Node:
    """Return the JSON Schema of specs."""
    return json.loads(files("schemas").joinpath("graphspec.schema.json").read_text(encoding="utf-8"))


def find_keys(data: Plain, path: Path) -> Mapping[str, str]:
    """Return the keys that the mapping at a path may have, with descriptions; of an op without a kind the kinds."""
    found: dict[str, str] = {}
    nodes, value = _follow(data, path)
    kinds = [each for node in nodes for each in _alternatives(node) if _name(each) in _OPS]
    if kinds and isinstance(value, dict) and _choose(value) is None:
        for kind in kinds:
            declared = _resolve(kind)
            key = next(iter(cast("list[str]", declared.get("required", []))), "")
            found[key] = str(declared.get("description", ""))
        return found
    for node in _expand(nodes, value):
        for key, each in _mapping(node, "properties").items():
            found.setdefault(key, str(_resolve(cast("Node", each)).get("description", "")))
    return found


def find_words(data: Plain, path: Path) -> Mapping[str, str]:
    """Return the words of the language that the value at a path may be, with their descriptions."""
    found: dict[str, str] = {}
    nodes, value = _follow(data, path)
    for node in _expand(nodes, value):
        words = cast("list[object]", node.get("enum", [])) + ([node["const"]] if "const" in node else [])
        words += [True, False] if node.get("type") == "boolean" else []
        for word in words:
            text = str(word).lower() if isinstance(word, bool) else str(word)
            found.setdefault(text, str(node.get("description", "")) if "const" in node else "")
    return found


def describe_key(data: Plain, path: Path) -> str:
    """Return the description of the key at the end of a path; nothing where the language has no such key."""
    if not path or not isinstance(path[-1], str):
        return ""
    return find_keys(data, path[:-1]).get(path[-1], "")


def _follow(data: Plain, path: Path) -> tuple[list[Node], Plain]:
    """Return the schemas of what is at a path, and what is."""
    nodes = [read_schema()]
    value: Plain = data
    for part in path:
        following: list[Node] = []
        for node in _expand(nodes, value):
            if isinstance(part, int):
                listed = cast("list[Node]", node.get("prefixItems", []))[part : part + 1]
                item = node.get("items")
                following += listed or ([cast("Node", item)] if isinstance(item, dict) else [])
                continue
            properties, rest = _mapping(node, "properties"), node.get("additionalProperties")
            patterns = _mapping(node, "patternProperties")
            if part in properties:
                following.append(cast("Node", properties[part]))
            elif (found := [each for pattern, each in patterns.items() if re.search(pattern, part)]) != []:
                following += cast("list[Node]", found)
            elif isinstance(rest, dict):
                following.append(cast("Node", rest))
        nodes = following
        value = look(value, (part,))
    return nodes, value


def _expand(nodes: list[Node], value: Plain) -> Iterator[Node]:
    """Yield schemas without references and alternatives, those left out that what is there cannot be."""
    for node in nodes:
        kind = _choose(value) if isinstance(value, dict) else None
        for each in _alternatives(node):
            if kind is not None and _name(each) in _OPS - {kind}:
                continue
            declared = _resolve(each)
            if not _fits(declared, value):
                continue
            yield declared
            for part in cast("list[Node]", declared.get("allOf", [])):
                if "if" not in part:
                    yield from _expand([part], value)
                    continue
                # The condition of a rule: constants that a mapping has.
                wanted = _mapping(cast("Node", part["if"]), "properties").items()
                constants = {key: cast("Node", each).get("const") for key, each in wanted}
                if isinstance(value, dict) and all(key in value and value[key] == constants[key] for key in constants):
                    yield from _expand([cast("Node", part["then"])], value)


def _alternatives(node: Node) -> Iterator[Node]:
    """Yield what a schema may be, references to definitions unresolved unless they are alternatives themselves."""
    declared = _resolve(node)
    branches = [each for key in ("anyOf", "oneOf") for each in cast("list[Node]", declared.get(key, []))]
    if not branches or "properties" in declared:  # what has both is a declaration with a rule on its keys
        yield node
        return
    for each in branches:
        yield from _alternatives(each)


def _resolve(node: Node) -> Node:
    """Return what a reference refers to, with the keys next to it."""
    if "$ref" not in node:
        return node
    definitions = cast("Mapping[str, Node]", read_schema()["$defs"])
    siblings = {key: each for key, each in node.items() if key != "$ref"}
    return {**definitions[_name(node)], **siblings}


def _name(node: Node) -> str:
    return str(node.get("$ref", "")).rpartition("/")[2]


def _mapping(node: Node, key: str) -> Mapping[str, object]:
    found = node.get(key)
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else {}


def _choose(op: Mapping[str, Plain]) -> str | None:
    """Return the definition of the kind of an op as written; None where it has none, or is no op."""
    kinds = [kind for kind in find_kinds(op) if kind in KINDS]
    if kinds:
        return KINDS[kinds[0]].__name__
    return next((name for key, name in _SPECIAL.items() if key in op), None)


def _fits(node: Node, value: Plain) -> bool:
    """Return whether a mapping may be of a declaration, by the constants in it."""
    if not isinstance(value, dict):
        return True
    others = cast("list[str]", _mapping(node, "not").get("required", []))
    if others and all(key in value for key in others):
        return False
    for key, each in _mapping(node, "properties").items():
        if "const" in cast("Node", each) and key in value:
            found = value[key]
            is_open = isinstance(found, str) and MARK in found  # it is being written
            if not is_open and found != cast("Node", each)["const"]:
                return False
    return True
