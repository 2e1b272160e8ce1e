"""error on 200 held-out sine waves, after two steps on ten points of each."""

from __future__ import annotations

from collections.abc import Iterator

from trial import Figure, Trial, read_last


def judge(trial: Trial) -> Iterator[Figure]:
    """Compare what the weights give after two steps with what they give as they are, for both orders."""
    given = ("-s", f"vars.seed={trial.seed}", "--allow", "sines")
    last = read_last(trial.run(*given))
    first = read_last(trial.run(*given, "-s", "vars.order=1", name="first-order"))
    for words, each in (("", last), (", learned by first order", first)):
        gone = 1.0 - each["eval/adapted_error"] / each["eval/unadapted_error"]
        yield Figure(name=f"how much of the error two steps remove{words}", value=gone, bar=0.6)
