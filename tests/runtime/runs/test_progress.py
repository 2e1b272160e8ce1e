"""The progress bar on a terminal, and the numbers beside it."""

from __future__ import annotations

import io
import math

import pytest

from runtime.train.display import Bar
from runtime.train.logs import Row, format_value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (0.69314718, "0.6931"),
        (-12.5, "-12.5000"),
        (1234567.0, "1.235e+06"),
        (0.00001234, "1.234e-05"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_have_four_digits_that_count(value, text):
    assert format_value(value) == text


@pytest.fixture
def bar(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "110")
    return Bar(io.StringIO(), 200)


def drawn(bar) -> str:
    bar.progress.refresh()
    return bar.progress.console.file.getvalue()


def test_the_bar_shows_steps_losses_and_speed(bar):
    with bar:
        bar.measure(Row(step=1, seconds=1.0, values={"d_loss": 2.0}))
        bar.measure(Row(step=101, seconds=3.0, values={"d_loss": 1.25, "g_loss": 0.5}))
        text = drawn(bar)
    assert "101/200" in text
    assert "d_loss 1.2500  g_loss 0.5000" in text
    assert "50 steps/s" in text


def test_the_bar_moves_without_values(bar):
    with bar:
        bar.advance(42)
        assert " 42/200" in drawn(bar)


def test_names_in_brackets_are_no_markup(bar):
    with bar:
        bar.say("warning: [bold] and [/nonsense]")
        assert "[bold] and [/nonsense]" in drawn(bar)


def test_at_most_four_values_stand_beside_the_bar(bar):
    with bar:
        bar.measure(Row(step=1, seconds=1.0, values={f"loss{number}": 1.0 for number in range(6)}))
        text = drawn(bar)
    assert "loss3" in text
    assert "loss4" not in text
