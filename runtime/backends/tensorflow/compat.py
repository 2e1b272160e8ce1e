"""Private parts of TensorFlow, behind one door: written for TensorFlow 2.21 and newer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

OLDEST = (2, 21)
"""The first version with everything that is used here."""


def is_supported() -> bool:
    """Return whether this TensorFlow is new enough."""
    major, minor = tf.__version__.split(".")[:2]
    return (int(major), int(minor)) >= OLDEST


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings and logs away from the terminal: what fails meanwhile is told by its diagnostic."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
