"""Random updates of a draft: of one model or several, from a loss or from gradients, with clips and clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.optimizers import random_optimizer

if TYPE_CHECKING:
    from tests.properties.specs import Draft


def add_updates(draft: Draft, count: int) -> None:
    """Add up to ``count`` updates; a model that is updated twice says in which order."""
    for _ in range(count):
        loss = draft.random.choice(sorted(draft.losses)) if draft.losses else None
        models = _choose_models(draft, loss) if loss is not None else []
        if loss is not None and models:
            _add_update(draft, loss, models)


def _choose_models(draft: Draft, loss: str) -> list[str]:
    """Return models that a loss reaches, so that every term of it reaches one of them; none where there are no such."""
    wanted = sorted((draft.losses[loss] & draft.models.keys()) - draft.slow.keys())
    free = [model for model in wanted if model not in draft.owned()]
    if not free:
        found = [draft.random.choice(wanted)] if wanted and draft.chance(0.4) else []
        return found if _reaches_all(draft, loss, found) else []
    found = draft.random.sample(free, draft.random.randint(1, min(3, len(free))))
    for term in draft.terms[loss]:
        reached = sorted(draft.reached[term] & set(free))
        if reached and not set(reached) & set(found):
            found.append(draft.random.choice(reached))
    return found if _reaches_all(draft, loss, found) else []


def _reaches_all(draft: Draft, loss: str, models: list[str]) -> bool:
    """Return whether every term of a loss reaches one of the models."""
    return all(draft.reached[term] & set(models) for term in draft.terms[loss])


def _add_update(draft: Draft, loss: str, models: list[str]) -> None:
    name, taken = draft.new("u"), draft.owned()
    op: dict[str, object] = {"update": models}
    op |= _add_sets(draft, loss, models) if draft.chance(0.2) else {"loss": loss}
    op |= draft.random.choice([{"clip": {"norm": 0.3}}, {"clip": {"value": 0.05}}]) if draft.chance(0.2) else {}
    op |= {"clip": {"norm": 0.2, "eps": 1e-6}} if draft.chance(0.05) else {}
    if not taken & set(models) and draft.chance(0.12):
        op["optimizer"] = random_optimizer(draft.random)
    earlier = [other for other, one in draft.ops.items() if set(one.get("update", [])) & set(models)]
    if any("optimizer" in draft.ops[other] for other in earlier):
        return
    op |= {"after": earlier} if earlier else {}
    op |= _random_clock(draft)
    op |= {"defer": "end"} if draft.chance(0.05) else {}
    draft.ops[name] = op


def _add_sets(draft: Draft, loss: str, models: list[str]) -> dict:
    """Add gradient ops with transforms on the way; return the field that uses them."""
    name = draft.new("set")
    draft.ops[name] = {"gradient": loss, "wrt": models}
    for _ in range(draft.random.randint(0, 2)):
        last, name = name, draft.new("set")
        draft.ops[name] = draft.random.choice(
            [
                {"transform": "clip_norm", "inputs": last, "args": {"norm": 0.5}},
                {"transform": "clip_value", "inputs": last, "args": {"value": 0.1}},
                {"call": "mul", "inputs": [last, 0.5]},
                {"call": "add", "inputs": [last, last]},
                {"call": "lerp", "inputs": [last, last, 0.25]},
            ]
        )
    return {"gradients": name}


def _random_clock(draft: Draft) -> dict:
    """Return when an op runs: in most cases in every step."""
    others = [name for name, op in draft.ops.items() if "update" in op]
    if not draft.chance(0.3):
        return {}
    choices: list[dict] = [{"every": 2}, {"every": 2}, {"start": 2}, {"until": 2}, {"every": 2, "start": 1}]
    choices += [{"until": "2 updates"}] if draft.chance(0.5) else []
    return draft.random.choice(choices + [{"every": other} for other in others[:1]])
