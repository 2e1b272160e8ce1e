"""Random training steps as plain documents: shared calls, BatchNorm, averages, copies, second derivatives, `after`."""

from __future__ import annotations

from random import Random

from tests.compiler.naive import Naive

PLAIN = [{"linear": 4}, {"linear": 4}]
NORMALIZED = [{"linear": 4}, "batch_norm", {"linear": 4}]


def random_step(seed: int, *, updates: int = 4) -> dict:
    """Return a document whose losses reach the models they update and whose ops all run; versions may conflict."""
    return _Writer(Random(seed), updates).write()


def clocked_step(seed: int) -> dict:
    """Return a random step in which some updates, averages and copies do not fire in every step."""
    document, random = random_step(seed), Random(-seed)
    meaning = Naive(document)
    for op in document["ops"].values():
        if ("update" in op or "into" in op) and random.random() < 0.5:
            op["every"] = random.choice([2, 3])
    spared = [value for value in document["outputs"] if not meaning.items[meaning.maker[value]].is_training]
    dropped = random.sample(spared, len(spared) * 2 // 3)
    return {**document, "outputs": [value for value in document["outputs"] if value not in dropped]}


def shuffled(document: dict, seed: int) -> dict:
    """Return the same step listed otherwise, train-mode forwards of models with buffers in the same relative order."""
    random, meaning = Random(seed), Naive(document)
    names = list(document["ops"])
    random.shuffle(names)
    training = [name for name in document["ops"] if meaning.items[name].is_training]
    places = sorted(names.index(name) for name in training)
    for place, name in zip(places, training, strict=True):
        names[place] = name
    return {**document, "ops": {name: document["ops"][name] for name in names}}


class _Writer:
    """Writes one document, op by op."""

    def __init__(self, random: Random, updates: int) -> None:
        self.random = random
        self.updates = updates
        self.models: dict[str, dict] = {}
        self.ops: dict[str, dict] = {}
        self.values = ["x"]
        self.losses: list[str] = []

    def write(self) -> dict:
        """Return a document with up to ``updates`` updates."""
        for name in "abcd"[: self.random.randint(2, 4)]:
            layers = NORMALIZED if self.random.random() < 0.35 else PLAIN
            self.models[name] = {"layers": layers, "optimizer": "sgd"}
        for index in range(self.random.randint(4, 8)):
            self._add_value(f"v{index}")
        for index in range(self.random.randint(2, 4)):
            self._add_loss(f"l{index}")
        for index in range(self.random.randint(2, self.updates)):
            self._add_update(f"u{index}")
        self._add_followers()
        self._add_orders()
        return {**self._head(), "ops": self.ops, "outputs": [*self.values[1:], *self.losses]}

    def _head(self) -> dict:
        shape = {"shape": ["batch", 4]}
        head = {"graphspec": 1, "name": "random", "inputs": {"x": shape, "y": shape}, "models": self.models}
        # what is said of a step names its calls and gradients one by one
        return {**head, "join_calls": False, "join_gradients": False}

    def _add_value(self, name: str) -> None:
        kind = self.random.random()
        if kind < 0.75 or len(self.values) < 3:
            model = self.random.choice(list(self.models))
            op: dict = {"forward": model, "inputs": self.random.choice(self.values)}
            op |= {"train": False} if self.random.random() < 0.3 else {}
            op |= {"stop": True} if self.random.random() < 0.1 else {}
            op |= {"snapshot": True} if self.random.random() < 0.05 else {}
        else:
            call = self.random.choice(["add", "mul", "tanh", "stop"])
            op = {"call": call, "inputs": self.random.sample(self.values, 2 if call in ("add", "mul") else 1)}
        self.ops[name] = op
        self.values.append(name)

    def _add_loss(self, name: str) -> None:
        self.ops[name] = {"loss": "mse", "inputs": [self.random.choice(self.values[1:]), "y"]}
        if self.random.random() < 0.25 and "x" in self._reaching(name):
            self.ops[f"{name}_slope"] = {"gradient": name, "wrt": "x"}
            self.ops[f"{name}_slope"] |= {"stop": True} if self.random.random() < 0.2 else {}
            self.ops[f"{name}_steep"] = {"loss": "mse", "inputs": [f"{name}_slope", 1.0]}
            self.losses.append(f"{name}_steep")
        self.losses.append(name)

    def _reaching(self, loss: str) -> set[str]:
        """Return the models, and x, that a loss can be differentiated with respect to."""
        probe = {**self._head(), "ops": {**self.ops, "probe": {"gradient": loss, "wrt": "x"}}}
        meaning = Naive(probe)
        cells = {model: meaning._between(loss, {f"{model}.params"}, set()) for model in self.models}
        return {model for model, path in cells.items() if path} | ({"x"} if meaning.path("probe") else set())

    def _add_update(self, name: str) -> None:
        loss = self.random.choice(self.losses)
        taken = {model for op in self.ops.values() for model in op.get("update", [])}
        wanted = sorted(self._reaching(loss) - {"x"})
        free = [model for model in wanted if model not in taken]
        if free:
            self.ops[name] = {
                "update": self.random.sample(free, self.random.randint(1, min(2, len(free)))),
                "loss": loss,
            }
        elif wanted and self.random.random() < 0.5:
            model = self.random.choice(wanted)
            first = [other for other, op in self.ops.items() if model in op.get("update", [])]
            self.ops[name] = {"update": [model], "loss": loss, "after": first}

    def _add_followers(self) -> None:
        updated = sorted({model for op in self.ops.values() for model in op.get("update", [])})
        for model in updated:
            if self.random.random() < 0.35:
                self.models[f"slow_{model}"] = {"like": model}
                kind = self.random.choice(
                    [
                        {"ema": model, "decay": 0.9, "buffers": "copy"},
                        {"ema": model, "decay": 0.9, "buffers": "ignore"},
                        {"copy": model},
                    ]
                )
                self.ops[f"follow_{model}"] = {**kind, "into": f"slow_{model}"}
                if self.random.random() < 0.6:
                    self.ops[f"seen_{model}"] = {"forward": f"slow_{model}", "inputs": "x"}
                    self.values.append(f"seen_{model}")

    def _add_orders(self) -> None:
        writes = [name for name, op in self.ops.items() if "update" in op or "into" in op]
        for name, op in self.ops.items():
            if "forward" in op and writes and self.random.random() < 0.15:
                candidate = {**op, "after": [self.random.choice(writes)]}
                self._replace_if_legal(name, candidate)

    def _replace_if_legal(self, name: str, candidate: dict) -> None:
        """Put an op in place of another unless something would have to come before itself."""
        ops = {**self.ops, name: candidate}
        try:
            meaning = Naive({**self._head(), "ops": ops})
        except StopIteration:
            return
        if not any(item in meaning.past[item] for item in meaning.items):
            self.ops = ops
