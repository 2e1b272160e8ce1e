"""Write the functions that Python code calls: `graphspec/library` and `graphspec/python/randoms.py`, from the tables.

`python -m tests.graphspec.functions` writes them; a test compares.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap

from graphspec.declare.library import CALLS, LOSSES, METRICS, RANDOMS, TRANSFORMS, Signature
from graphspec.declare.optimizers import OPTIMIZERS, RATE
from graphspec.declare.options import Option

ROOT = Path(__file__).parents[2]
NOTE = "`python -m tests.graphspec.functions` writes this file."
TYPES = {
    "int": "int",
    "number": "Number",
    "bool": "bool",
    "pair": "int | Sequence[int]",
    "sizes": "int | Sequence[int]",
    "shape": "int | Sequence[int | str]",
    "axes": "int | Sequence[int]",
    "index": "int",
    "betas": "Sequence[Number]",
    "auto": 'bool | Literal["auto"]',
    "subscript": "int | str",
    "equation": "str",
}
NAMED = {name: each for name, each in CALLS.items() if name not in ("slice", "subscript")}
"""Values have brackets for these: `x[:, 1:3]`."""

EXAMPLES = {
    "normal": 'z = g.normal("z", ["batch", 16])',
    "uniform": 'share = g.uniform("share", ["batch", 1])',
    "bernoulli": 'mask = g.bernoulli("mask", like=x, p=0.9)',
    "permutation": 'order = g.permutation("order", ["batch"])',
    "randint": 'digit = g.randint("digit", ["batch"], high=10)',
}
"""The examples of the methods that draw random numbers."""


def write_type(option: Option) -> str:
    named = ", ".join(f'"{each}"' for each in option.choices)
    return f"Literal[{named}]" if option.kind == "choice" else TYPES[option.kind]


def write_option(option: Option) -> str:
    kind = write_type(option)
    return f"{option.name}: {kind}" if option.required else f"{option.name}: {kind} | None = None"


def describe(option: Option) -> str:
    default = "" if option.default is None or "default" in option.meaning else f" (default {spell(option.default)})"
    return f"{option.name}: {option.meaning}{default}"


def spell(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def sort_options(options: tuple[Option, ...]) -> list[Option]:
    return sorted(options, key=lambda option: not option.required)


def write_docstring(text: str, options: tuple[Option, ...], indent: str) -> Iterator[str]:
    lines = wrap(f'"""{text.removesuffix(" + ...").removesuffix(" * ...")}.', 118 - len(indent))
    lines += [""] if options else []
    for option in options:
        lines += wrap(describe(option), 118 - len(indent), subsequent_indent="    ")
    lines = [f"{indent}{line}".rstrip() for line in lines]
    yield from [*lines, f'{indent}"""'] if options else [f'{"".join(lines)}"""']


def write_dict(options: tuple[Option, ...]) -> str:
    return "{" + ", ".join(f'"{option.name}": {option.name}' for option in options) + "}"


def write_function(name: str, signature: Signature, family: str) -> Iterator[str]:
    operand = "Value" if family == "transform" else "Operand"
    operands = [f"{each}: {operand}" for each in signature.operands]
    given = [*signature.operands]
    if signature.repeats:
        operands.append(f"*more: {operand}")
        given.append("*more")
    rest = [write_option(option) for option in sort_options(signature.options)]
    if family == "loss":
        rest.append('reduction: Literal["mean", "sum", "none"] | None = None')
        rest.append("weight: Number | None = None")
        rest.append('lazy: Literal["scale", "none"] | None = None')
    if family == "metric":
        rest.append("reset: int | str | None = None")
    star = ["*"] if rest and not signature.repeats else []
    sections = any(option.name == "sections" for option in signature.options)
    several = sections or signature.results > 1
    result = "tuple[Value, ...]" if several else "Value"
    parameters = ", ".join([*operands, *star, *rest, "**fields: Unpack[Fields]"])
    yield f"def {name}({parameters}) -> {result}:"
    yield from write_docstring(f"Apply `{name}`: {signature.meaning}", signature.options, "    ")
    options, inputs = write_dict(signature.options), f"[{', '.join(given)}]"
    if several:
        count = "count_sections(sections)" if sections else signature.results
        yield f'    return apply_several("{name}", {inputs}, {options}, fields, {count})'
    elif family == "call":
        yield f'    return apply("{name}", "call", {inputs}, {options}, fields)'
    elif family == "loss":
        whole = options.removesuffix("}") + (", " if signature.options else "") + '"reduction": reduction}'
        yield f'    return apply("{name}", "loss", {inputs}, {whole}, {{**fields, "weight": weight, "lazy": lazy}})'
    else:
        common = '{**fields, "reset": reset}' if family == "metric" else "fields"
        yield f'    return record_function("{family}", "{name}", {inputs}, {options}, {common})'
    yield from ("", "")


def write_module(title: str, family: str, table: Mapping[str, Signature], helpers: str) -> str:
    body = [line for name, each in table.items() for line in write_function(name, each, family)]
    text = "\n".join(body)
    used = [name for name in ("Fields", "Number", "Operand", "Value") if name in text]
    helpers = ", ".join(sorted([*used, *helpers.split()]))
    sequence = "from collections.abc import Sequence\n" if "Sequence" in text else ""
    typing = "Literal, Unpack" if "Literal" in text else "Unpack"
    return (
        f'"""{title}\n\n{NOTE}\n"""\n\nfrom __future__ import annotations\n\n{sequence}from typing import {typing}\n\n'
        f"from graphspec.python.values import {helpers}\n\n\n{text}"
    )


def write_optimizers() -> str:
    lines = [
        f'"""Optimizers of the language, for models and updates.\n\n{NOTE}\n"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Mapping, Sequence",
        "from typing import Literal",
        "",
        "from graphspec.python.values import Number",
        "",
        "",
    ]
    for name, options in OPTIMIZERS.items():
        rest = ", ".join(write_option(option) for option in options if option.name != RATE)
        lines.append(f"def {name}(lr: Number | None = None, *, {rest}) -> Mapping[str, object]:")
        lines.extend(
            write_docstring(
                f"Use the optimizer {name}; options that are left out have the defaults of the spec", options, "    "
            )
        )
        lines.append(f'    return _write("{name}", {write_dict(options)})')
        lines.extend(["", ""])
    lines += [
        "def _write(name: str, options: Mapping[str, object]) -> Mapping[str, object]:",
        '    return {"name": name, **{key: each for key, each in options.items() if each is not None}}',
    ]
    return "\n".join(lines)


def write_randoms() -> str:
    lines = [
        f'"""The methods of a graph that draw random numbers.\n\n{NOTE}\n"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Mapping, Sequence",
        "from typing import Unpack",
        "",
        "from graphspec.python.records import Recorder",
        "from graphspec.python.values import Common, Number, Value, record_op",
        "",
        "",
        "class Randoms:",
        '    """Draw random numbers: of a shape, or ``like`` a value; the name comes first."""',
        "",
        "    _recorder: Recorder",
        "",
    ]
    for name, signature in RANDOMS.items():
        rest = ", ".join(write_option(option) for option in sort_options(signature.options))
        lines.append(
            f"    def {name}(self, name: str | None = None, shape: Sequence[int | str] | None = None, *, "
            f"like: Value | None = None, {rest}{', ' if rest else ''}**fields: Unpack[Common]) -> Value:"
        )
        *text, end = write_docstring(f"Draw from `{name}`: {signature.meaning}", signature.options, "        ")
        lines += [*text, ""] if text else [end.removesuffix('"""'), ""]
        lines += [f"        >>> {EXAMPLES[name]}", '        """']
        lines.append(f'        return self._draw("{name}", name, shape, like, {write_dict(signature.options)}, fields)')
        lines.append("")
    lines += [
        "    def _draw(self, random: str, name: str | None, shape: Sequence[int | str] | None, like: Value | None, "
        "options: Mapping[str, object], fields: Common) -> Value:",
        "        args = {key: each for key, each in options.items() if each is not None}",
        '        given = {"random": random, "shape": shape, "like": like, "args": args or None}',
        "        site = self._recorder.sources.find()",
        '        common, places = {**fields, "name": name}, ("name", "shape")',
        '        entry = record_op(self._recorder, "random", given, common, site, positional=places)',
        "        return Value(self._recorder, entry)",
    ]
    return "\n".join(lines)


def write_all() -> Mapping[Path, str]:
    """Return every generated file, formatted."""
    library = ROOT / "graphspec" / "library"
    found = {
        library / "calls.py": write_module("Functions of values.", "call", NAMED, "apply apply_several count_sections"),
        library / "losses.py": write_module("Losses.", "loss", LOSSES, "apply"),
        library / "metrics.py": write_module("Metrics.", "metric", METRICS, "record_function"),
        library / "transforms.py": write_module(
            "Transforms of gradient sets.", "transform", TRANSFORMS, "record_function"
        ),
        library / "optimizers.py": write_optimizers(),
        ROOT / "graphspec" / "python" / "randoms.py": write_randoms(),
        library / "__init__.py": write_package(),
    }
    return {path: reformat(text) for path, text in found.items()}


def write_package() -> str:
    parts = {"calls": NAMED, "losses": LOSSES, "optimizers": OPTIMIZERS}
    names = [*(name for table in parts.values() for name in table), "metrics", "schedule", "transforms"]
    imports = "\n".join(
        f"from graphspec.library.{part} import {', '.join(sorted(table))}" for part, table in parts.items()
    )
    listed = ", ".join(f'"{name}"' for name in sorted(names))
    return (
        '"""The library for Python code: calls, losses, optimizers, schedules; metrics and transforms are modules.\n\n'
        f'{NOTE}\n"""\n\nfrom __future__ import annotations\n\nfrom graphspec.library import metrics, '
        f"transforms\n{imports}\n"
        f"from graphspec.library.schedules import schedule\n\n__all__ = [{listed}]\n"
    )


def reformat(text: str) -> str:
    """Return a source in the format of the project."""
    command = [Path(sys.executable).with_name("ruff"), "format", "--config", ROOT / "pyproject.toml", "-"]
    sort = [
        Path(sys.executable).with_name("ruff"),
        "check",
        "--select",
        "I,RUF022",
        "--fix",
        "--quiet",
        "--config",
        ROOT / "pyproject.toml",
        "-",
    ]
    once = subprocess.run(sort, input=text.rstrip() + "\n", capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return subprocess.run(command, input=once, capture_output=True, text=True, check=True, cwd=ROOT).stdout


if __name__ == "__main__":
    for target, content in write_all().items():
        target.write_text(content, encoding="utf-8")
