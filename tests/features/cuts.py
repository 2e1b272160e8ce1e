"""A run that is cut and goes on elsewhere: another build takes the rest of the steps from a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from runtime import Step


def assert_goes_on(
    make: Callable[[], Step],
    walk: Callable[[Step, Sequence[object]], object],
    batches: Sequence[object],
    cuts: Iterable[int],
) -> None:
    """Take steps; another build that is given the state behind some of them must do in the rest what the first did.

    ``walk`` takes steps, and returns what came of them.
    """
    step, other = make(), make()
    states, found = [step.state()], []
    for batch in batches:
        found.append(walk(step, [batch]))
        states.append(step.state())
    for cut in cuts:
        other.restore(states[cut])
        assert [walk(other, [batch]) for batch in batches[cut:]] == found[cut:], cut
