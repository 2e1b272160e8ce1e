"""A YAML text as a tree of its values, each spelled as its author did, with the comments that are about it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import cast

from msgspec import Struct
from yaml import (
    AliasEvent,
    CBaseLoader,
    CollectionEndEvent,
    CollectionStartEvent,
    MappingStartEvent,
    ScalarEvent,
    StreamEndEvent,
)

from graphspec.read.scalars import resolve
from graphspec.write.layout import Block, Note, Path, Tree, Word, quote, spell_scalar

_WORDS = r"[./%+-]*[A-Za-z0-9_][A-Za-z0-9_./%+-]*(?::[A-Za-z0-9_./%+-]+)*"
_UNQUOTED = re.compile(f"{_WORDS}(?: {_WORDS})*")
"""A text that stays without quotes where it has none: it means the same between brackets."""
_DURATION = re.compile(r"[0-9]+(?:\.[0-9]+)? [a-z]+")
_BLOCK_STYLES = ("|", ">")
_LINE = re.compile(r"[^\r\n]*")


class Part(Struct, eq=False, kw_only=True):
    """A value of a text, with its key and its comments; positions are offsets."""

    start: int
    """Where its key begins, or where it does itself."""
    key: str | None = None
    key_end: int = -1
    end: int = -1
    kind: str = "scalar"
    in_brackets: bool = False
    """Whether it is a list or a mapping between brackets."""
    leaf: Tree = None
    parts: list[Part] = []
    holder: Part | None = None
    before: list[str] = []
    after: list[str] = []
    below: list[str] = []

    def to_tree(self) -> Tree:
        """Return the value for the layout."""
        if self.kind == "map":
            return {part.key or "": part.to_tree() for part in self.parts}
        return [part.to_tree() for part in self.parts] if self.kind == "list" else self.leaf

    def list_notes(self, tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Note]]:
        """Yield the comments of the parts of this value by their paths in its tree, whose keys may be sorted."""
        if isinstance(tree, dict):
            by_key = {part.key: part for part in self.parts}
            listed = [(key, by_key[key], item) for key, item in tree.items()]
        else:
            items = tree if isinstance(tree, list) else []
            listed = [(number, part, item) for number, (part, item) in enumerate(zip(self.parts, items, strict=True))]
        for _, part, item in listed:
            part.lift_comment(item)
        for number, (name, part, item) in enumerate(listed):
            before = part.before[1:] if number == 0 and part.before[:1] == [""] else part.before
            if before or part.after or part.below:
                after = "  ".join(part.after)  # those of several lines between brackets that are one line now
                yield (*path, name), Note(before=tuple(before), after=after, below=tuple(part.below))
            yield from part.list_notes(item, (*path, name))

    def list_bracketed(self, path: Path = ()) -> Iterator[Path]:
        """Yield the paths of the lists and mappings between brackets."""
        for number, part in enumerate(self.parts):
            place = (*path, number if part.key is None else part.key)
            if part.in_brackets:
                yield place
            yield from part.list_bracketed(place)

    def lift_comment(self, tree: Tree) -> None:
        """Take the comment before the first part of an item of a list: it begins on the line of the item's dash."""
        if self.key is not None or not self.parts or not isinstance(tree, dict | list):
            return
        first = (
            self.parts[0] if isinstance(tree, list) else next(each for each in self.parts if each.key in [*tree][:1])
        )
        first.lift_comment(tree[0] if isinstance(tree, list) else None)
        self.before += first.before
        first.before = []

    def walk(self) -> Iterator[Part]:
        """Yield the parts of this value, and theirs, in the order of the text."""
        for part in self.parts:
            yield part
            yield from part.walk()


class SourceTree(Struct, kw_only=True):
    """The values of a YAML text that the reader accepts: no tags, no merge keys, and keys that are scalars."""

    root: Part
    head: list[str] = []
    """The comments above the first value."""
    scalars: list[tuple[int, int]] = []
    """Where scalars are: a `#` in one is no comment."""
    has_anchors: bool = False


def read_tree(text: str) -> SourceTree:
    """Return the values of a YAML text with their comments."""
    tree = SourceTree(root=Part(start=0))
    holder: Part | None = None
    keyed: Part | None = None
    parser = CBaseLoader(text)
    try:
        while not isinstance(event := parser.get_event(), StreamEndEvent | None):
            start, end = event.start_mark.index, event.end_mark.index
            if isinstance(event, CollectionEndEvent):
                assert holder is not None
                holder.end = end if holder.in_brackets else max(holder.end, *(part.end for part in holder.parts))
                holder = holder.holder
            elif isinstance(event, ScalarEvent | AliasEvent | CollectionStartEvent):
                if isinstance(event, ScalarEvent):
                    end = start + len(text[start:end].rstrip())
                    tree.scalars.append((start, end))
                is_key = holder is not None and holder.kind == "map" and keyed is None
                part = Part(start=start) if keyed is None else keyed
                if is_key:
                    leaf = _spell(event, text[start:end], part, tree)
                    # An alias as a key needs a space after it.
                    part.key = f"{leaf} " if isinstance(event, AliasEvent) else cast("str", leaf)
                    part.key, part.key_end, keyed = Word(spell_scalar(part.key)), end, part
                    continue
                keyed, part.holder, part.end = None, holder, max(end, part.key_end)
                if holder is None:
                    tree.root = part
                else:
                    holder.parts.append(part)
                if isinstance(event, CollectionStartEvent):
                    part.kind = "map" if isinstance(event, MappingStartEvent) else "list"
                    part.in_brackets = bool(event.flow_style)
                    part.key_end = end if part.in_brackets else part.key_end
                    holder = part
                else:
                    part.leaf = _spell(event, text[start:end], part, tree)
    finally:
        parser.dispose()
    _Comments(text, tree).place()
    return tree


def _spell(event: ScalarEvent | AliasEvent | CollectionStartEvent, source: str, part: Part, tree: SourceTree) -> Tree:
    """Return a scalar for the layout: numbers as they are written, texts between quotes only where they need them."""
    if isinstance(event, AliasEvent):
        tree.has_anchors = True
        return Word(f"*{event.anchor}")
    assert isinstance(event, ScalarEvent)
    value: str = event.value
    leaf: str = value
    if event.style in _BLOCK_STYLES:
        leaf = _read_block(value, source, part)
    elif event.style:  # between quotes
        leaf = Word(value) if _DURATION.fullmatch(value) else value
    elif not value or not isinstance(resolve(value), str) or _UNQUOTED.fullmatch(value):
        leaf = Word(value or "null")
    if event.anchor is None:
        return leaf
    tree.has_anchors = True
    return Word(f"&{event.anchor} {quote(value) if isinstance(leaf, Block) else spell_scalar(leaf)}")


def _read_block(value: str, source: str, part: Part) -> str:
    """Return a text over several lines as it is written, if its first line gives its indentation; else its value."""
    head, *lines = source.splitlines()
    head, _, comment = head.partition("#")
    if comment:
        part.after.append(f"#{comment}".rstrip())
    filled = [line for line in lines if line.strip()]
    if not filled or head.strip() not in ("|", "|-", ">", ">-"):
        return value
    indent = len(filled[0]) - len(filled[0].lstrip(" "))
    return Block("\n".join((head.strip(), *(line[indent:] for line in lines))))


class _Comments:
    """Give comments, and the empty lines between parts, to what they are about."""

    def __init__(self, text: str, tree: SourceTree) -> None:
        self._text = text
        self._tree = tree
        self._parts = [*tree.root.walk()]
        self._starts = [part.start for part in self._parts]
        marks = [(part.key_end, False, part) for part in (tree.root, *self._parts) if part.key_end >= 0]
        marks += [
            (part.end, True, part) for part in (tree.root, *self._parts) if part.in_brackets or part.kind == "scalar"
        ]
        self._marks = sorted(marks, key=lambda mark: mark[:2])
        """Where a key, an opened bracket or a value ends, and whether it is the value."""
        self._ends = [mark[0] for mark in self._marks]

    def place(self) -> None:
        """Walk over all lines that no text continues."""
        spans = self._tree.scalars
        is_apart, position = False, 0
        while position < len(self._text):
            match = _LINE.match(self._text, position)
            line_end = position if match is None else match.end()
            content = self._text[position:line_end]
            start = position + len(content) - len(content.lstrip())
            if not content.strip():
                is_apart = True
            elif content.lstrip()[0] == "#":
                self._place_line(content.strip(), start, start - position, is_apart)
                is_apart = False
            else:
                place = bisect_left(self._starts, start) if is_apart else len(self._parts)
                if place < len(self._parts) and self._starts[place] < line_end:
                    part = self._parts[place]  # the empty line before it is kept
                    if place == 0 and self._tree.head:
                        self._tree.head.append("")
                    elif part.holder is not None and not part.holder.in_brackets:
                        part.before.append("")
                is_apart = False
                # What begins on this line may end on another.
                while (at := bisect_left(spans, (position, -1))) < len(spans) and spans[at][0] < line_end:
                    position = max(spans[at][1], position + 1)
                    match = _LINE.match(self._text, position)
                    line_end = position if match is None else match.end()
                rest = self._text[position:line_end]
                if "#" in rest:
                    at = position + rest.index("#")
                    text, mark = self._text[at:line_end].rstrip(), self._find_mark(at)
                    if mark is not None and mark[0] > self._text.rfind("\n", 0, at):  # after what it follows
                        (self._tree.head if mark[2] is self._tree.root else mark[2].after).append(text)
                    else:  # after the dash of an item
                        self._place_line(text, at, 0, False)
            position = line_end + (2 if self._text[line_end : line_end + 2] == "\r\n" else 1)

    def _find_mark(self, position: int) -> tuple[int, bool, Part] | None:
        place = bisect_right(self._ends, position)
        return self._marks[place - 1] if place else None

    def _place_line(self, text: str, position: int, column: int, is_apart: bool) -> None:
        """Give a comment on its own line to what follows, or to what is before if it is indented like that."""
        lines = ["", text] if is_apart else [text]
        place = bisect_right(self._starts, position)
        if place == 0:
            self._tree.head += lines if self._tree.head else [text]
            return
        following = self._parts[place] if place < len(self._parts) else None
        mark = self._find_mark(position)
        bracket = None if mark is None else mark[2]  # the innermost value between brackets that the comment is in
        while bracket is not None and not (bracket.in_brackets and bracket.start < position < bracket.end):
            bracket = bracket.holder
        if bracket is not None:
            is_inside = following is not None and following.start < bracket.end
            if is_inside and following is not None:
                following.before += lines
            elif bracket.parts:
                bracket.parts[-1].below += lines
            else:
                bracket.after.append(text)
            return
        # Of what ends here, the comment is below the innermost outside of brackets that is not right of it.
        ended, part = list[Part](), None if mark is None or not mark[1] else mark[2]
        while part is not None and part.holder is not None:
            ended = [] if part.holder.in_brackets else [*ended, part]
            part = part.holder
        above = next((each for each in ended if self._find_column(each) <= column), None)
        if following is not None and (above is None or column <= self._find_column(following)):
            following.before += lines
        else:
            (above or self._tree.root).below += lines

    def _find_column(self, part: Part) -> int:
        """Return the column of a part; of an item of a list, that of its dash."""
        line = self._text.rfind("\n", 0, part.start) + 1
        indent = self._text[line : part.start]
        return indent.index("-") if part.key is None and "-" in indent else len(indent)
