"""A text of sums in words, letter by letter: what tied-lm.yaml reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

ALPHABET = " .abcdefghijklmnopqrstuvwxyz"
NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
)
HELD_OUT = 5
"""One sum in so many is not trained on."""


def windows(context: int, held_out: bool) -> Mapping[str, npt.NDArray[np.int64]]:
    """Return `before` [n, context], letters as numbers, and `after_it` [n], the letter that follows them."""
    rows = [row for sentence in sentences(held_out=held_out) for row in slide(sentence, context)]
    letters = np.array(rows, np.int64)
    return {"before": letters[:, :-1], "after_it": letters[:, -1]}


def sentences(*, held_out: bool) -> Iterator[str]:
    """Yield the sums of two numbers below ten, or those that are held out."""
    for first in range(10):
        for second in range(10):
            if ((first + 2 * second) % HELD_OUT == 0) == held_out:
                yield f"{NUMBERS[first]} and {NUMBERS[second]} is {NUMBERS[first + second]}."


def slide(sentence: str, context: int) -> Iterator[list[int]]:
    """Yield every letter of a sentence behind those before it; before the sentence there are blanks."""
    letters = [ALPHABET.index(letter) for letter in " " * context + sentence]
    for start in range(len(sentence)):
        yield letters[start : start + context + 1]
