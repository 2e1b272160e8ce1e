"""Includes: blocks, models and variables of other files, as if they were written in the document.

A file is named relative to the one that includes it, and lies in the root folder or below it: nothing else is read, and
nothing is fetched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from graphspec.diagnostics import Diagnostic, Span, SpecError
from graphspec.limits import Limits
from graphspec.read.source import Document, Path, Place, Plain, read_document
from graphspec.words import describe, did_you_mean, enumerate_names

SHARED = ("blocks", "models", "vars")
"""What a file can share."""
KEYS = (*SHARED, "graphspec", "include", "name")
"""What an included file may hold; the last three say what it is, and what it includes itself."""
MARKS = (".git", "pyproject.toml")
"""What the root folder of a project has in it."""
NOTHING_OPENED: Mapping[FilePath, str] = MappingProxyType({})


def find_root(folder: FilePath) -> FilePath:
    """Return the folder that includes may not leave: the nearest with a `.git` or `pyproject.toml`, else this one."""
    folder = folder.resolve()
    return next((each for each in (folder, *folder.parents) if any((each / mark).exists() for mark in MARKS)), folder)


class Merged(Mapping[Path, Place]):
    """The places of a document and of what it includes."""

    def __init__(self, own: Mapping[Path, Place], shared: Mapping[Path, Mapping[Path, Place]]) -> None:
        self._own = own
        self._shared = shared

    def __getitem__(self, path: Path) -> Place:
        return (self._own if path in self._own else self._shared.get(path[:2], self._own))[path]

    def __iter__(self) -> Iterator[Path]:
        yield from self._own
        for prefix, places in self._shared.items():
            yield from (path for path in places if path[:2] == prefix and path not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Found(Struct, frozen=True, kw_only=True):
    """Something that a file shares: its value, and the file."""

    value: Plain
    document: Document


def include_files(
    document: Document,
    path: FilePath | None,
    root: FilePath | None,
    limits: Limits,
    opened: Mapping[FilePath, str] = NOTHING_OPENED,
) -> Document:
    """Return a document with what its `include` names; ``path`` is its file, None for a text.

    ``opened`` are the texts that an editor has of some files, in place of those on the disk.

    Raises SpecError for files that cannot be read, lie outside of the root folder, include each other, or share a name
    that there is already, and for more text in all of them together than one document may have.
    """
    data = document.data
    if not isinstance(data, dict) or "include" not in data:
        return document
    if path is None:
        span, help = document.key_span(("include",)), "write it into a file, or write out what it includes"
        message = "a text includes nothing: files are named relative to the file of the spec"
        raise SpecError([Diagnostic(code="GS066", message=message, span=span, help=help)], document.texts)
    reader = _Reader(find_root(path.parent) if root is None else root.resolve(), limits, document, opened)
    found = reader.collect(document, path.resolve(), ())
    merged: dict[str, Plain] = {key: value for key, value in data.items() if key != "include"}
    shared: dict[Path, Mapping[Path, Place]] = {}
    for section in SHARED:
        own = merged.get(section, {})
        if not isinstance(own, dict):
            continue  # reported where it is read
        others = {name: each for (of, name), each in found.items() if of == section}
        for name in own.keys() & others.keys():
            reader.clash(section, name, others[name].document, document)
        if others:
            merged[section] = {**{name: each.value for name, each in others.items()}, **own}
        shared |= {(section, name): each.document.places for name, each in others.items()}
    return replace(document, data=merged, places=Merged(document.places, shared), others=reader.texts)


class _Reader:
    """Reads included files, each once, and knows how much it has read."""

    def __init__(self, root: FilePath, limits: Limits, document: Document, opened: Mapping[FilePath, str]) -> None:
        self._root = root
        self._limits = limits
        self._document = document
        self._opened = opened
        self._size = len(document.text)
        self._read: dict[FilePath, Mapping[tuple[str, str], _Found]] = {}
        self.texts: dict[str, str] = {}
        """Of what was included, by the names of the files."""

    def collect(
        self, document: Document, path: FilePath, around: tuple[FilePath, ...]
    ) -> Mapping[tuple[str, str], _Found]:
        """Return what the files that a document includes share, by section and name."""
        assert isinstance(document.data, dict)
        listed = document.data.get("include")
        names = listed if isinstance(listed, list) else [listed]
        found: dict[tuple[str, str], _Found] = {}
        for index, name in enumerate(names):
            place: Path = ("include", index) if isinstance(listed, list) else ("include",)
            if not isinstance(name, str):
                message, help = f"expected the path of a file, found {describe(name)}", "write `include: [shared.yaml]`"
                self._fail(message, document.value_span(place), help)
            shown = os.path.normpath(os.path.join(os.path.dirname(document.file), name))
            for key, each in self._open(name, shown, path, document.value_span(place), (*around, path)).items():
                if key in found and found[key].document is not each.document:
                    self.clash(*key, each.document, found[key].document)
                found[key] = each
        return found

    def _open(
        self, name: str, shown: str, path: FilePath, span: Span, around: tuple[FilePath, ...]
    ) -> Mapping[tuple[str, str], _Found]:
        """Return what a file and those that it includes share."""
        if "://" in name:
            self._fail(f"'{name}' is an address", span, "save the file next to the spec, and name it by its path")
        target = (path.parent / name).resolve()
        if not target.is_relative_to(self._root):
            above = os.path.relpath(os.path.commonpath((self._root, target.parent)))
            help = f"move it there, or give a folder above both: `--root {above}`"
            self._fail(f"'{name}' lies outside of the root folder '{os.path.relpath(self._root)}'", span, help)
        if target in around:
            way = " -> ".join(each.name for each in (*around[around.index(target) :], target))
            self._fail(f"files include each other: {way}", span, "move what both need into a third file")
        if target not in self._read:
            document = self._load(target, shown, span)
            assert isinstance(document.data, dict)
            found = dict(self.collect(document, target, around)) if "include" in document.data else {}
            for section in SHARED:
                entries = document.data.get(section, {})
                if not isinstance(entries, dict):
                    message = f"expected a mapping as `{section}`, found {describe(entries)}"
                    self._fail(message, document.value_span((section,)), "write names with what they stand for")
                for key, value in entries.items():
                    if (section, key) in found:
                        self.clash(section, key, document, found[section, key].document)
                    found[section, key] = _Found(value=value, document=document)
            self._read[target] = found
        return self._read[target]

    def _load(self, target: FilePath, shown: str, span: Span) -> Document:
        """Return an included document, which shares something and nothing else."""
        try:
            document = read_document(self._opened.get(target, target), name=shown, limits=self._limits)
        except SpecError as error:
            if error.diagnostics[0].span is None:  # there is no such file: the place is where it is named
                problems = [replace(each, span=span) for each in error.diagnostics]
                raise SpecError(problems, {**self._document.texts, **self.texts}) from None
            if not any(text.strip() for text in error.texts.values()):
                self._fail(f"'{shown}' is empty", span, f"write {enumerate_names(SHARED, last='or')} into it")
            raise
        self.texts[shown] = document.text
        self._size += len(document.text)
        if self._size > self._limits.bytes:
            help = "put data into files and name them, or raise `limits`"
            self._fail(f"with what it includes the document is larger than {self._limits.bytes:,} bytes", span, help)
        if not isinstance(document.data, dict):
            self._fail(f"'{shown}' holds {describe(document.data)}, and no mapping", span, "write `blocks: {...}`")
        for key in document.data:
            if key not in KEYS:
                message = f"an included file shares {enumerate_names(SHARED)}, found '{key}'"
                label = did_you_mean(key, SHARED)
                help = "correct the key" if label else "write it in the spec itself"
                self._fail(message, document.key_span((key,)), help, label)
        return document

    def clash(self, section: str, name: str, document: Document, other: Document) -> NoReturn:
        """Raise SpecError for a name that two files have."""
        first = other.key_span((section, name)).place
        message = f"'{name}' of `{section}` is declared twice: here and at {first}"
        self._fail(message, document.key_span((section, name)), "rename one of them")

    def _fail(self, message: str, span: Span, help: str, label: str = "") -> NoReturn:
        problem = Diagnostic(code="GS066", message=message, span=span, label=label, help=help)
        raise SpecError([problem], {**self._document.texts, **self.texts})
