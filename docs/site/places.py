"""Where the files of the repository stand on the site, and the links between them.

Pages link to each other, and to files outside docs/, by relative paths, as a viewer of files follows them. On the site
another file may stand at another place: README.md is its home page, a spec of the examples a page of the gallery, any
other file a page that shows it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from textwrap import indent

CODE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}).*?^ *(?P=fence) *$|(?P<ticks>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE | re.DOTALL,
)
"""A fenced block, or code inside a line: no link is in it."""
LINK = re.compile(r"(?<=\]\()(?!\w+:)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
"""The target of a link, or of an image, without a host."""


@dataclass(frozen=True, slots=True)
class Places:
    """The place of every file and folder that the site shows: its path in the repository to the source of its page."""

    uris: Mapping[str, str]

    def find(self, name: str, page: str) -> str:
        """Return the way to a file from a page of the site."""
        return posixpath.relpath(self.uris[name], posixpath.dirname(page))

    def move(self, text: str, origin: str) -> str:
        """Return the Markdown of a file with links that lead to the same files on the site.

        A link to what the site does not have stays as it is written, and a strict build reports it.
        """

        def change(found: re.Match[str]) -> str:
            """Return a target as the page reaches it."""
            name = resolve(found["path"], origin)
            return self.find(name, self.uris[origin]) + (found["anchor"] or "") if name in self.uris else found[0]

        return change_text(text, lambda prose: LINK.sub(change, prose))


def resolve(target: str, origin: str) -> str:
    """Return the path in the repository that a file links to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))


def find_targets(text: str, origin: str) -> list[str]:
    """Return the paths in the repository that the Markdown of a file links to."""
    prose = CODE.sub("", text)
    return [resolve(found["path"], origin) for found in LINK.finditer(prose)]


def change_text(text: str, change: Callable[[str], str]) -> str:
    """Return Markdown with a change to all that is not code."""
    parts: list[str] = []
    end = 0
    for found in CODE.finditer(text):
        parts += (change(text[end : found.start()]), found[0])
        end = found.end()
    return "".join((*parts, change(text[end:])))


def adapt(text: str) -> str:
    """Return Markdown as Python-Markdown reads it, where GitHub's reading is another.

    A fence that belongs to an item of a list is indented by four columns, not by two, and a bar inside code of a table
    is a bar without its backslash.
    """

    def change(found: re.Match[str]) -> str:
        """Return a block, or code inside a line, as the other reads it."""
        if found["fence"]:
            return indent(found[0], "  ") if len(found["indent"]) == 2 else found[0]
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        return found[0].replace("\\|", "|") if line.startswith("|") else found[0]

    return CODE.sub(change, text)


def make_anchor(heading: str, separator: str) -> str:
    """Return the anchor of a heading as GitHub makes it, so that a link to it is right in both."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)
