"""Random specs of updates whose losses are sums of the same terms, so that one backward pass may give several."""

from __future__ import annotations

from random import Random
from typing import Any

FACTORS = (1.0, 1.0, -1.0, 0.5, -0.1, 3.0)
OPTIMIZERS = ({"name": "sgd", "lr": 0.1}, {"name": "adam", "lr": 0.01}, {"name": "sgd", "lr": 0.05, "momentum": 0.9})
LAYERS = (
    [{"linear": 4}, "tanh"],
    [{"linear": 5}, "tanh", {"linear": 4}],
    [{"linear": {"out": 4, "bias": False}}, "batch_norm", "tanh"],
    [{"linear": {"out": 4, "bias": False}}, "relu"],
)


def sharing_spec(random: Random) -> dict[str, Any]:
    """Return a document; some of its updates have losses that others give, some nearly so."""
    models = {f"m{index}": {"layers": random.choice(LAYERS)} for index in range(random.randint(2, 4))}
    ops: dict[str, Any] = {}
    reached: dict[str, frozenset[str]] = {"x": frozenset(), "y": frozenset()}
    """The models on which a value depends, for a gradient."""
    for index in range(random.randint(3, 6)):
        model = random.choice([*models]) if index >= len(models) else f"m{index}"
        given = [*reached][-1] if index and random.random() < 0.6 else random.choice([*reached])
        ops[f"v{index}"] = {"forward": model, "inputs": given, **random.choice([{}, {}, {}, {"train": False}])}
        is_stopped = random.random() < 0.1
        ops[f"v{index}"] |= {"stop": True} if is_stopped else {}
        reached[f"v{index}"] = frozenset() if is_stopped else reached[given] | {model}
    terms = _add_terms(ops, reached, random)
    weights = {term: random.choice(FACTORS) for term in terms}
    left = list(models)
    for index in range(4):
        _add_update(f"u{index}", ops, terms, weights, left, random)
    head: dict[str, Any] = {"graphspec": 1, "name": "sharing"}
    head["inputs"] = {name: {"shape": ["batch", 4]} for name in ("x", "y")}
    head |= {"micro_batches": random.choice([2, 3])} if random.random() < 0.15 else {}
    return {**head, "models": models, "ops": ops, "outputs": [*terms]}


def _add_terms(ops: dict[str, Any], reached: dict[str, frozenset[str]], random: Random) -> dict[str, frozenset[str]]:
    """Add losses; return the models on which each depends."""
    found: dict[str, frozenset[str]] = {}
    for index in range(random.randint(1, 3)):
        one = random.choice([name for name in reached if name.startswith("v")][-2:])
        other = random.choice(["x", "y", "y", *reached])
        ops[f"t{index}"] = {"loss": random.choice(["mse", "l1"]), "inputs": [one, other]}
        found[f"t{index}"] = reached[one] | reached[other]
    return {term: models for term, models in found.items() if models}


def _add_update(
    name: str,
    ops: dict[str, Any],
    terms: dict[str, frozenset[str]],
    weights: dict[str, float],
    left: list[str],
    random: Random,
) -> None:
    """Add an update of one or two models that none steps yet, by terms that depend on them."""
    models = random.sample(left, min(len(left), random.choice([1, 1, 1, 2])))
    fitting = [term for term, reached in terms.items() if not reached.isdisjoint(models)]
    is_whole = all(any(model in terms[term] for term in fitting) for model in models)
    if not models or not is_whole:
        return
    for model in models:
        left.remove(model)
    chosen = [term for term in fitting if random.random() < 0.9] or fitting
    chosen = chosen if all(any(model in terms[term] for term in chosen) for model in models) else fitting
    times = random.choice(FACTORS)
    pieces: list[str] = []
    for term in chosen:
        factor = random.choice(FACTORS) if random.random() < 0.1 else times * weights[term]
        pieces.append(random.choice([f"{factor} * {term}", f"{term} * {factor}", f"-({-factor} * {term})"]))
    ops[name] = {"update": models, "loss": " + ".join(pieces), "optimizer": random.choice(OPTIMIZERS)}
    ops[name] |= random.choice([{}, {}, {}, {"clip": {"norm": 0.1}}, {"accumulate": 2}, {"every": 2}])
    ops[name] |= {"on_overflow": "own"} if random.random() < 0.1 else {}
