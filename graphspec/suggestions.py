"""Suggestions: the names a user may have meant."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import islice

_CUTOFF = 0.6
_PREFIX_SCORE = 0.8
_PREFIX_LENGTH = 3
_LONGEST = 64
_MOST = 400
_SYNONYMS = {
    "learningrate": "lr",
    "beta1": "betas",
    "beta2": "betas",
    "epsilon": "eps",
    "maxnorm": "norm",
    "clipnorm": "norm",
    "clipvalue": "value",
    "gradientaccumulationsteps": "accumulate",
}
"""What other libraries call what has another name here."""


def closest(name: str, candidates: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Return the candidates most like a name, the best first, those equally good in the order given.

    Case, ``_`` and ``-`` do not count, a beginning of a name is like the whole, and what other libraries call a thing
    is like its name here. Names of more than 64 characters are like none, and of many candidates the first 400 count.
    """
    if len(name) > _LONGEST:
        return ()
    short = (each for each in candidates if len(each) <= _LONGEST)
    return _find_closest(name, tuple(islice(short, _MOST)), count)


@functools.lru_cache(maxsize=256)
def _find_closest(name: str, candidates: tuple[str, ...], count: int) -> tuple[str, ...]:
    folded = _fold(name)
    same = [each for each in candidates if _SYNONYMS.get(folded) == each]
    matcher = SequenceMatcher(b=folded, autojunk=False)
    scored = [
        (_score(matcher, folded, _fold(candidate)), candidate)
        for candidate in dict.fromkeys(candidates)
        if candidate != name
    ]
    good = sorted((pair for pair in scored if pair[0] >= _CUTOFF), key=lambda pair: -pair[0])
    return tuple(dict.fromkeys([*same, *(candidate for _, candidate in good)]))[:count]


def _score(matcher: SequenceMatcher[str], name: str, other: str) -> float:
    """Return the likeness of two names, the first of which the matcher knows: 1 for equal, 0 for nothing in common."""
    matcher.set_seq1(other)
    shorter = min(len(name), len(other))
    is_beginning = shorter >= _PREFIX_LENGTH and name[:shorter] == other[:shorter]
    at_least = _PREFIX_SCORE if is_beginning else 0.0
    if matcher.real_quick_ratio() < _CUTOFF or matcher.quick_ratio() < _CUTOFF:
        return at_least
    return max(at_least, matcher.ratio())


def _fold(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")
