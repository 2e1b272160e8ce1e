"""Random averages and copies of a draft, into models that other ops may read, or into hidden ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphspec.declare.ops.ema import UNDECIDED

if TYPE_CHECKING:
    from tests.properties.specs import Draft


def add_followers(draft: Draft) -> None:
    """Let every slow model follow its source, and some sources have a hidden average."""
    for slow, source in draft.slow.items():
        if draft.is_called(source) and (source in draft.owned() or draft.chance(0.1)):
            _add_follower(draft, f"follow_{source}", source, slow)
    for source in sorted(draft.owned()):
        if draft.chance(0.15):
            _add_hidden(draft, source)


def _add_follower(draft: Draft, name: str, source: str, slow: str) -> None:
    trained = any(op.get("forward") == slow and op.get("train") is True for op in draft.ops.values())
    if draft.chance(0.3) and not trained:
        op: dict[str, object] = {"copy": source, "into": slow}
    else:
        op = {"ema": source, "into": slow, **_random_rate(draft)}
        op |= _random_policy(draft, source, ignore=trained)
    draft.ops[name] = op
    _set_clock(draft, name)


def _add_hidden(draft: Draft, source: str) -> None:
    name = f"mean_{source}"
    op = {"ema": source, **_random_rate(draft), **_random_policy(draft, source, ignore=False)}
    op |= {"use": {"eval": "swap"}} if op.get("buffers") != "ignore" and draft.chance(0.4) else {}
    draft.ops[name] = op
    _set_clock(draft, name)
    if "parameter" not in draft.models[source] and draft.chance(0.6):
        draft.ops[f"seen_{source}"] = {"forward": name, "inputs": "label" if draft.is_table(source) else "x"}


def follow_rules(draft: Draft) -> None:
    """Let averages of models that one schedule-free rule steps be those that it keeps, in most cases."""
    for op in draft.ops.values():
        rule = draft.models.get(op.get("ema", ""), {}).get("optimizer", {})
        updates = [each for each in draft.ops.values() if op.get("ema") in each.get("update", [])]
        is_free = isinstance(rule, dict) and str(rule.get("name")).startswith("schedule_free")
        if is_free and updates and not any("optimizer" in each for each in updates) and draft.chance(0.7):
            for key in ("decay", "tau", "half_life", *UNDECIDED):
                op.pop(key, None)
            op["schedule_free"] = True


def _random_rate(draft: Draft) -> dict[str, object]:
    return draft.random.choice(
        [
            {"decay": 0.9},
            {"tau": 0.2},
            {"half_life": "3 updates"},
            {"half_life": 2, "interval_correction": "none"},
            {"decay": 0.8, "interval_correction": "compound"},
        ]
    )


def _random_policy(draft: Draft, source: str, *, ignore: bool) -> dict[str, object]:
    if not draft.with_buffers(source):
        return {}
    return {"buffers": "ignore" if ignore else draft.random.choice(["copy", "average", "ignore"])}


def _set_clock(draft: Draft, name: str) -> None:
    """Give an average or copy a clock, in a third of the cases."""
    if not draft.chance(0.3):
        return
    op = draft.ops[name]
    source = op.get("ema", op.get("copy"))
    owners = [other for other, one in draft.ops.items() if source in one.get("update", [])]
    compounds = "half_life" in op or op.get("interval_correction") == "compound"
    named = [] if compounds else [{"every": owner} for owner in owners[:1]]
    counted = [{"start": "2 updates"}, {"until": "2 updates"}, {"every": 2, "start": "3 updates"}]
    draft.try_fields(
        name, draft.random.choice([{"every": 2}, {"start": 2}, {"every": 2, "start": 2}, *counted, *named])
    )
