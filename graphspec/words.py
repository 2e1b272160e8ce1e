"""The words of messages: how they name values and paths, and the names that a user may have meant."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import islice

_LONGEST_QUOTE = 40
_CUTOFF = 0.6
_PREFIX_SCORE = 0.8
_SYNONYM_SCORE = 2.0
_PREFIX_LENGTH = 3
_LONGEST_NAME = 64
_MOST = 400
_FORMULA = re.compile(r"[-+*/@<>&|~()]")
_WORD = re.compile(r"[\w.]+")
_PAIR = re.compile(r"(\w+)(?:[:=] *| +)(\S.*)")
_SYNONYMS = {
    "learningrate": "lr",
    "beta1": "betas",
    "beta2": "betas",
    "epsilon": "eps",
    "maxnorm": "norm",
    "clipnorm": "norm",
    "clipvalue": "value",
    "gradientaccumulationsteps": "accumulate",
    "polyak": "tau",
    "softupdate": "tau",
    "bmm": "matmul",
    "cat": "concat",
    "chunk": "split",
    "transpose": "permute",
    "swapaxes": "permute",
    "view": "reshape",
    "squeeze": "reshape",
    "unsqueeze": "reshape",
    "broadcastto": "expand",
    "tile": "expand",
}
"""What other libraries call what has another name here."""


def describe(value: object) -> str:
    """Return what a value is, as in "the string 'abc'" or "a list"."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the string {quote(value)}"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return "a value of another kind"


def quote(text: str) -> str:
    """Return a text between quotes, cut where it is long."""
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[: _LONGEST_QUOTE - 1]}…")


def spell_path(path: Sequence[str | int]) -> str:
    """Return a path as overrides spell it: ``models.generator.args``; the empty one is "the document"."""
    return ".".join(map(str, path)) or "the document"


def enumerate_words(words: Sequence[str], *, conjunction: str = "or") -> str:
    """Return words as a sentence lists them: "a, b or c"."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def enumerate_names(names: Iterable[str], *, last: str = "and") -> str:
    """Return names as `a`, `b` and `c`."""
    *most, final = [f"`{name}`" for name in names] or ["nothing"]
    return f"{', '.join(most)} {last} {final}" if most else final


def count(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s unless there is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def closest(name: str, candidates: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Return the candidates most like a name, the best first, those equally good in the order given.

    Case, ``_`` and ``-`` do not count, a beginning of a name is like the whole, and what other libraries call a thing
    is like its name here. Names of more than 64 characters are like none, and of many candidates the first 400 count.
    """
    if len(name) > _LONGEST_NAME:
        return ()
    short = (each for each in candidates if len(each) <= _LONGEST_NAME)
    return _rank(name, tuple(islice(short, _MOST)))[:count]


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return the label that suggests the candidate most like a name, or nothing where none is like it."""
    near = closest(name, candidates, 1)
    return f"did you mean '{near[0]}'?" if near else ""


def fix_key(key: str, value: object) -> str:
    """Return the remedy for a key without a value that should have had a colon and a space; else nothing."""
    found = _PAIR.fullmatch(key) if value is None else None
    return "" if found is None else f"write `{found[1]}: {found[2]}`, with a space after the colon"


def fix_name(text: str) -> str:
    """Return the remedy for a text that is a list or an expression in place of a name; else nothing."""
    parts = [each.strip() for each in text.split(",")]
    if len(parts) > 1 and all(map(_WORD.fullmatch, parts)):
        return f"write a list: `[{', '.join(parts)}]`"
    return "write an expression as an op of its own, `{expr: ...}`, and its name here" if _FORMULA.search(text) else ""


@functools.lru_cache(maxsize=256)
def _rank(name: str, candidates: tuple[str, ...]) -> tuple[str, ...]:
    """Return the candidates that are enough like a name, the best first."""
    folded = _fold(name)
    matcher = SequenceMatcher(b=folded, autojunk=False)
    scores: dict[str, float] = {}
    for candidate in candidates:
        other = _fold(candidate)
        shorter = min(len(folded), len(other))
        is_beginning = shorter >= _PREFIX_LENGTH and folded[:shorter] == other[:shorter]
        score = _PREFIX_SCORE if is_beginning else 0.0
        matcher.set_seq1(other)
        # The quick ratios are upper bounds of the ratio.
        if matcher.real_quick_ratio() >= _CUTOFF and matcher.quick_ratio() >= _CUTOFF:
            score = max(score, matcher.ratio())
        if _SYNONYMS.get(folded) == candidate:
            score = _SYNONYM_SCORE
        if score >= _CUTOFF and candidate != name:
            scores[candidate] = score
    return tuple(sorted(scores, key=lambda candidate: -scores[candidate]))


def _fold(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")
