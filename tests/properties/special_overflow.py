"""Specs written by hand for what gradients that are not finite stop; the second of three steps overflows."""

from __future__ import annotations

from collections.abc import Mapping

SHAPE = {"shape": ["batch", 3]}
FUSE = "fuse_at_2"
DYNAMIC = {"precision": {"loss_scale": {"initial": 4, "growth_steps": 1}}}
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
LAYERS = [{"linear": 3}, "tanh", {"linear": 3}]


def _document(name: str, models: str, ops: dict, **fields: object) -> dict:
    """Return a document of models that are alike, in which ``burst`` is not finite in the second step."""
    declared = {each: {"layers": LAYERS, "optimizer": SGD} for each in models}
    inputs = {"x": SHAPE, "y": SHAPE, FUSE: SHAPE}
    ops = {"burst": {"call": "mean", "inputs": FUSE}, **ops}
    return {"graphspec": 1, "name": name, "inputs": inputs, "models": declared, "ops": ops, **fields}


def _fit(model: str, *, bursts: bool = False, **fields: object) -> dict:
    """Return a forward of a model, its loss, which may overflow, and its update."""
    ops = {
        f"out_{model}": {"forward": model, "inputs": "x", "after": []},
        f"fit_{model}": {"loss": "mse", "inputs": [f"out_{model}", "y"]},
        f"loss_{model}": {"call": "mul", "inputs": [f"fit_{model}", "burst" if bursts else 1.0]},
    }
    return {**ops, f"step_{model}": {"update": model, "loss": f"loss_{model}", **fields}}


def skipped_together() -> dict:
    """Return two updates that commit together, an average of the one that is finite, and an op that counts steps."""
    average = {"average": {"ema": "b", "decay": 0.5, "every": 2}}
    ops = {**_fit("b"), **_fit("a", bursts=True), **average, **_fit("c", every=2, on_overflow="apply")}
    return _document("skipped-together", "abc", ops, **DYNAMIC)


def written_twice() -> dict:
    """Return an average of a model that has two updates of their own, of which one overflows."""
    ops = {
        **_fit("a", bursts=True, on_overflow="own"),
        "small": {"loss": "huber", "inputs": ["out_a", 0.0]},
        "shrink_a": {"update": "a", "loss": "small", "after": "step_a", "on_overflow": "own"},
        "average": {"ema": "a", "decay": 0.5},
    }
    return _document("written-twice", "a", ops, **DYNAMIC)


def all_skipped() -> dict:
    """Return two updates, before one of whose gradients a third is applied: one group only because it is asked for."""
    ops = {
        **_fit("a", bursts=True),
        **_fit("b", on_overflow="apply"),
        "moved": {"forward": "b", "inputs": "x", "after": "step_b"},
        "seen": {"forward": "c", "inputs": "moved"},
        "fit_c": {"loss": "mse", "inputs": ["seen", "y"]},
        "step_c": {"update": "c", "loss": "fit_c", "on_overflow": "all"},
    }
    return _document("all-skipped", "abc", ops)


def in_turn() -> dict:
    """Return two updates of which the second sees what the first has written: two groups."""
    ops = {
        **_fit("a", bursts=True),
        "moved": {"forward": "a", "inputs": "x", "after": "step_a"},
        "seen": {"forward": "b", "inputs": "moved"},
        "fit_b": {"loss": "mse", "inputs": ["seen", "y"]},
        "step_b": {"update": "b", "loss": "fit_b"},
    }
    return _document("in-turn", "ab", ops, **DYNAMIC)


def gathered_in_turn() -> dict:
    """Return a window, and an update behind it that overflows in a step in which the window only gathers."""
    moved = {"out_b": {"forward": "b", "inputs": "x", "after": ["step_a"]}}
    return _document(
        "gathered-in-turn", "ab", {**_fit("a", accumulate=3), **_fit("b", bursts=True), **moved}, **DYNAMIC
    )


def windows_with_holes() -> dict:
    """Return windows of three steps: one does without the second, the other is given up."""
    window = {"steps": 3, "on_nonfinite": "window"}
    ops = {**_fit("a", bursts=True, accumulate=3), **_fit("b", accumulate=window), **_fit("c", every=2)}
    return _document("windows-with-holes", "abc", ops, **DYNAMIC)


def at_its_pace() -> dict:
    """Return a state, an update and a window that go by the steps of an update."""
    ops = {
        **_fit("a", bursts=True),
        "mean": {"call": "mean", "inputs": "x", "args": {"axis": 0}},
        "move": {"assign": "center", "value": "mean", "every": "step_a"},
        "shifted": {"call": "sub", "inputs": ["out_a", "center"]},
        "far": {"loss": "mse", "inputs": ["shifted", 1.0]},
        **_fit("b"),
        "step_b": {"update": "b", "loss": "loss_b", "every": "step_a", "on_overflow": "own"},
        **_fit("c"),
        "step_c": {"update": "c", "loss": "loss_c", "every": "step_a", "on_overflow": "apply", "accumulate": 3},
    }
    return _document("at-its-pace", "abc", ops, state={"center": {"shape": [3]}}, **DYNAMIC)


def gathered_at_its_pace() -> dict:
    """Return windows that gather in the steps of an update that overflows, and one of them has overflows of its own."""
    whole = {"steps": 3, "on_nonfinite": "window"}
    ops = {
        **_fit("a", bursts=True, on_overflow="own"),
        **_fit("b", every="step_a", accumulate=2, on_overflow="own"),
        **_fit("c", bursts=True, every="step_b", accumulate=whole, on_overflow="own"),
    }
    return _document("gathered-at-its-pace", "abc", ops, **DYNAMIC)


def counted_on() -> dict:
    """Return two updates of one optimizer on a schedule, of which the first is held before all verdicts are known."""
    ops = {
        **_fit("a", bursts=True, on_overflow="own"),
        "small": {"loss": "huber", "inputs": ["out_a", 0.0]},
        "shrink_a": {"update": "a", "loss": "small", "after": "step_a", "on_overflow": "apply"},
        "moved": {"forward": "a", "inputs": "x", "after": "shrink_a"},
        "seen": {"forward": "b", "inputs": "moved"},
        "fit_b": {"loss": "mse", "inputs": ["seen", "y"]},
        "step_b": {"update": "b", "loss": "fit_b"},
    }
    found = _document("counted-on", "ab", ops, **DYNAMIC)
    found["models"]["a"]["optimizer"] = {"name": "sgd", "lr": {"schedule": "linear", "from": 0.2, "to": 0.0, "over": 8}}
    return found


def gathered_anyway() -> dict:
    """Return a window that takes whatever comes, in steps whose only verdict is its own."""
    ops = _fit("a", accumulate=4, on_overflow="apply")
    return _document("gathered-anyway", "a", ops, **DYNAMIC)


def clipped_first() -> dict:
    """Return an update from gradients that a clip by value has made finite again."""
    ops = {
        "temperature": {"forward": "t"},
        "far": {"loss": "mse", "inputs": ["temperature", 5.0]},
        "loss": {"call": "mul", "inputs": ["far", "burst"]},
        "slope": {"gradient": "loss", "wrt": "t"},
        "short": {"transform": "clip_value", "inputs": "slope", "args": {"value": 0.1}},
        "step": {"update": "t", "gradients": "short"},
    }
    tensor = {"t": {"parameter": {"shape": [], "init": "ones"}, "optimizer": SGD}}
    return {**_document("clipped-first", "", ops, **DYNAMIC), "models": tensor}


def multiplied_by_infinity() -> dict:
    """Return an update from finite gradients that are multiplied by what is not, and one in a group with it."""
    ops = {
        **_fit("a"),
        **_fit("b"),
        "slope": {"gradient": "loss_a", "wrt": "a"},
        "steep": {"call": "mul", "inputs": ["slope", "burst"]},
        "step_a": {"update": "a", "gradients": "steep"},
    }
    return _document("multiplied-by-infinity", "ab", ops, **DYNAMIC)


def steep_penalty() -> dict:
    """Return two updates of one model, behind the first of which the slope of its penalty is infinite."""
    ops = {
        **_fit("a"),
        "small": {"loss": "huber", "inputs": ["out_a", 0.0]},
        "shrink_a": {"update": "a", "loss": "small", "after": "step_a", "on_overflow": "own"},
        **_fit("b", accumulate=2),
    }
    found = _document("steep-penalty", "ab", ops, **DYNAMIC)
    at = {"0": 0.1, "2": 1.7e308}
    found["models"]["a"]["regularizer"] = {"l2": {"schedule": "piecewise", "at": at}}
    found["models"]["b"]["regularizer"] = {"l2": {"schedule": "piecewise", "at": {"0": 1.7e308, "1": 0.1}}}
    return found


def gathered_with_gaps() -> dict:
    """Return a window of three steps in which one model has a gradient in the second alone, which overflows."""
    ops = {
        **_fit("a", bursts=True),
        "out_b": {"forward": "b", "inputs": "x"},
        "late": {"loss": "mse", "inputs": ["out_b", "y"], "every": 2, "lazy": "none"},
        "both": {"call": "add", "inputs": ["loss_a", "late"]},
        "step_a": {"update": ["a", "b"], "loss": "both", "missing": "skip", "accumulate": 3, "on_overflow": "own"},
    }
    found = _document("gathered-with-gaps", "ab", ops, **DYNAMIC)
    found["models"]["b"]["optimizer"] = {**SGD, "weight_decay": 0.1}
    return found


def penalized_next() -> dict:
    """Return three updates of one model with a penalty, of which the first overflows, each skipped alone."""
    ops = {
        **_fit("a", bursts=True, on_overflow="own"),
        "small": {"loss": "huber", "inputs": ["out_a", 0.0]},
        "shrink_a": {"update": "a", "loss": "small", "after": "step_a", "on_overflow": "own"},
        "least": {"loss": "l1", "inputs": ["out_a", 0.5]},
        "move_a": {"update": "a", "loss": "least", "after": "shrink_a", "on_overflow": "own", "accumulate": 2},
    }
    found = _document("penalized-next", "a", ops, **DYNAMIC)
    found["models"]["a"]["regularizer"] = {"l2": 0.2}
    return found


def penalized_often() -> dict:
    """Return seven updates of one model with a penalty, each skipped alone; all but the first and the last overflow."""
    ops = dict(_fit("a", on_overflow="own"))
    last = "step_a"
    for at in range(1, 7):
        ops |= {
            f"part_{at}": {"loss": "huber", "inputs": ["out_a", 0.1 * at]},
            f"part_{at}_loss": {"call": "mul", "inputs": [f"part_{at}", 1.0 if at == 6 else "burst"]},
            f"move_{at}": {"update": "a", "loss": f"part_{at}_loss", "after": last, "on_overflow": "own"},
        }
        last = f"move_{at}"
    found = _document("penalized-often", "a", ops, **DYNAMIC)
    found["models"]["a"]["regularizer"] = {"l2": 0.2}
    return found


OVERFLOWING: Mapping[str, dict] = {
    "skipped-together": skipped_together(),
    "written-twice": written_twice(),
    "all-skipped": all_skipped(),
    "in-turn": in_turn(),
    "windows-with-holes": windows_with_holes(),
    "at-its-pace": at_its_pace(),
    "gathered-at-its-pace": gathered_at_its_pace(),
    "clipped-first": clipped_first(),
    "multiplied-by-infinity": multiplied_by_infinity(),
    "steep-penalty": steep_penalty(),
    "penalized-next": penalized_next(),
    "penalized-often": penalized_often(),
    "counted-on": counted_on(),
    "gathered-anyway": gathered_anyway(),
    "gathered-in-turn": gathered_in_turn(),
    "gathered-with-gaps": gathered_with_gaps(),
}
