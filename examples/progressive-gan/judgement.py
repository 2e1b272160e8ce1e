"""how the digits that it draws look to a classifier, and how near they are to real ones; bars are those of the demo."""

from __future__ import annotations

from collections.abc import Iterator

import demo
from trial import Figure, Trial

from runtime import reopen


def judge(trial: Trial) -> Iterator[Figure]:
    """Train the classifier of the demo as well, and let it judge samples."""
    drawn = demo.draw_samples(reopen(trial.run()))
    classifier = reopen(trial.run(name="classifier", spec=demo.CLASSIFIER))
    found = demo.judge(drawn, classifier, demo.read_digits().train)
    yield Figure(name="images that the classifier is confident about", value=found.confident, bar=demo.LEAST_CONFIDENT)
    yield Figure(name="classes that it sees", value=found.classes, bar=demo.LEAST_CLASSES, form=".0f")
    name = "distance to the nearest training digit, below 0"
    yield Figure(name=name, value=-found.distance, bar=-demo.MOST_DISTANCE, form=".2f")
