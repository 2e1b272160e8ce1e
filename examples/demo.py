"""The demo: plan a GAN, ask why an update waits, train it on real handwritten digits, and judge what it draws.

Everything before the judgement is the command line of stepgraph, each command printed as it can be typed. The judge is
a classifier that was trained on the training digits by the example ema-classifier. Ends with exit code 1 where the
samples do not pass.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import sys
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from runtime import reopen
from runtime.cli import execute
from runtime.step import Step

EXAMPLES = Path(__file__).parent
GAN = EXAMPLES / "gan-digits" / "gan-digits.yaml"
CLASSIFIER = EXAMPLES / "ema-classifier" / "ema-classifier.yaml"
SEPARATE = EXAMPLES / "cyclegan-separate" / "cyclegan-separate.yaml"

SAMPLES = 500
CONFIDENT = 0.9
"""The probability of its best class from which the classifier counts as confident."""
PRESENT = 0.03
"""The share of all images that a class must hold, confidently, to count as drawn."""
LEAST_ACCURACY = 0.97
LEAST_CONFIDENT = 0.70
LEAST_CLASSES = 9
MOST_DISTANCE = 1.4

Images = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """The bundled digits [n, 1, 8, 8] from -1 (paper) to 1 (ink), and the classes of the held-out ones."""

    train: Images
    held_out: Images
    held_out_labels: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How a set of images looks to the classifier, and how near it comes to the training digits."""

    confident: float
    """The share of the images that the classifier is confident about."""
    classes: int
    """How many classes hold their share of confident images."""
    distance: float
    """The mean Euclidean distance to the nearest training digit, over 64 pixels from 0 to 1."""

    def verdicts(self) -> tuple[bool, bool, bool]:
        """Return which bars are passed: share, classes, distance."""
        return self.confident >= LEAST_CONFIDENT, self.classes >= LEAST_CLASSES, self.distance <= MOST_DISTANCE


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description="Plan, explain, train and judge a GAN on handwritten digits.")
    parser.add_argument("--seed", type=int, default=0, help="the seed of weights, noise and data order (default: 0)")
    parser.add_argument("--backend", choices=["torch", "tensorflow"], default="torch", help="(default: torch)")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="where runs go (default: demo-output)")
    arguments = parser.parse_args()
    began = time.perf_counter()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for torch, before it is imported: models this small gain nothing
    folder = make_folder(arguments.out, arguments.seed)
    show_plans(arguments.backend)
    gan, classifier = train(folder, arguments.seed, arguments.backend)
    passed = judge_all(gan, classifier, arguments.seed)
    for picture in ("samples.png", "curves.png"):
        print(f"look at {folder / 'gan' / picture}")
    print(f"{'PASS' if passed else 'FAIL'}: seed {arguments.seed}, {time.perf_counter() - began:.0f} s in all")
    return 0 if passed else 1


def make_folder(parent: Path, seed: int) -> Path:
    """Make and return a folder that no earlier run has used."""
    for number in itertools.count(1):
        folder = parent / (f"seed-{seed}" if number == 1 else f"seed-{seed}-{number}")
        if not folder.exists():
            folder.mkdir(parents=True)
            return folder
    raise AssertionError("counting ends never")


def show_plans(backend: str) -> None:
    """Print the GAN's plan, and the reason of an update that has to wait in another step, on PyTorch."""
    say("One training step is declared in YAML. This is the order that was found for it:")
    command("plan", relative(GAN), *on(backend))
    say("No update waits there. With a loss for each of CycleGAN's translators, one must, whatever the order. Why?")
    command("explain", relative(SEPARATE), "step_to_negative")


def train(folder: Path, seed: int, backend: str) -> tuple[Step, Step]:
    """Train the GAN, and the classifier that judges it; return both as they are at the end."""
    settings = (*on(backend), "--seed", str(seed), "--device", "cpu")
    say("Train the GAN on 1,437 real handwritten digits:")
    command("run", relative(GAN), *settings, "--out", str(folder / "gan"))
    say("Train the judge on the same digits:")
    command("run", relative(CLASSIFIER), *settings, "--out", str(folder / "classifier"))
    return reopen(folder / "gan"), reopen(folder / "classifier")


def on(backend: str) -> tuple[str, ...]:
    """Return the option for a backend that is not the default."""
    return () if backend == "torch" else ("--backend", backend)


def say(text: str) -> None:
    """Print a line of the story."""
    print(f"\n{text}", flush=True)


def command(*words: str) -> None:
    """Print a command of stepgraph and run it; leave where it fails."""
    print(f"$ stepgraph {shlex.join(words)}\n", flush=True)
    code = execute(words)
    if code:
        sys.exit(code)


def relative(path: Path) -> str:
    """Return a path as one would type it here."""
    return os.path.relpath(path)


def judge_all(gan: Step, classifier: Step, seed: int) -> bool:
    """Judge samples beside real digits and noise, print the table, and return whether the samples pass."""
    digits = read_digits()
    out = classifier({"image": digits.held_out, "label": digits.held_out_labels}, mode="eval")
    accuracy = float(classifier.numpy(out["accuracy"]))
    judgements = {
        f"{SAMPLES} samples of the GAN": judge(draw_samples(gan), classifier, digits.train),
        f"{len(digits.held_out)} real digits, held out": judge(digits.held_out, classifier, digits.train),
        f"{SAMPLES} images of uniform noise": judge(draw_noise(seed), classifier, digits.train),
    }
    print_table(judgements, accuracy)
    return accuracy >= LEAST_ACCURACY and all(next(iter(judgements.values())).verdicts())


def read_digits() -> Digits:
    """Read the bundled digits with their fixed split."""
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        images, labels, is_test = held["image"], held["label"], held["is_test"]
    scaled = (images[:, np.newaxis] / 8 - 1).astype(np.float32)
    return Digits(train=scaled[~is_test], held_out=scaled[is_test], held_out_labels=labels[is_test].astype(np.int64))


def draw_samples(gan: Step) -> Images:
    """Return samples of the GAN: the batch tells how many, its pixels do not matter."""
    out = gan({"image": np.zeros((SAMPLES, 1, 8, 8), np.float32)}, mode="eval")
    return gan.numpy(out["samples"])


def draw_noise(seed: int) -> Images:
    """Return images whose pixels are drawn evenly from all shades."""
    return np.random.default_rng(seed).uniform(-1, 1, (SAMPLES, 1, 8, 8)).astype(np.float32)


def judge(images: Images, classifier: Step, train: Images) -> Judgement:
    """Judge images by the classifier and by their distance to the training digits."""
    labels = np.zeros(len(images), np.int64)  # eval mode also measures the accuracy, which means nothing here
    out = classifier({"image": images, "label": labels}, mode="eval")
    probabilities = classifier.numpy(out["probabilities"])
    is_confident = probabilities.max(axis=1) >= CONFIDENT
    held = np.bincount(probabilities.argmax(axis=1)[is_confident], minlength=probabilities.shape[1]) / len(images)
    return Judgement(
        confident=float(is_confident.mean()),
        classes=int((held >= PRESENT).sum()),
        distance=measure_distance(images, train),
    )


def measure_distance(images: Images, train: Images) -> float:
    """Return the mean distance of an image to the training digit nearest to it, over 64 pixels from 0 to 1."""
    ones, others = ((each.reshape(len(each), -1).astype(np.float64) + 1) / 2 for each in (images, train))
    squares = (ones**2).sum(axis=1)[:, np.newaxis] + (others**2).sum(axis=1) - 2 * ones @ others.T
    return float(np.sqrt(squares.min(axis=1).clip(min=0)).mean())


def print_table(judgements: dict[str, Judgement], accuracy: float) -> None:
    """Print the figures of every set of images, the bars, and whether the first set passes them."""
    passed = verdict(accuracy >= LEAST_ACCURACY)
    say(f"The judge is right on {accuracy:.1%} of the held-out digits (bar: {LEAST_ACCURACY:.0%}): {passed}")
    print(f"\n{'':28}{'confident':>12}{'classes':>10}{'distance':>11}")
    for name, each in judgements.items():
        print(f"{name:28}{each.confident:>12.1%}{each.classes:>10}{each.distance:>11.2f}")
    shares = f">= {LEAST_CONFIDENT:.0%}"
    print(f"{'bar':28}{shares:>12}{f'>= {LEAST_CLASSES}':>10}{f'<= {MOST_DISTANCE}':>11}")
    first = [verdict(each) for each in next(iter(judgements.values())).verdicts()]
    print(f"{'the samples':28}{first[0]:>12}{first[1]:>10}{first[2]:>11}\n")
    print(f"confident: the judge gives one class a probability of at least {CONFIDENT}")
    print(f"classes: how many of the ten hold at least {PRESENT:.0%} of the images, confidently")
    print("distance: to the nearest training digit, Euclidean over 64 pixels from 0 to 1, in the mean\n")


def verdict(passed: bool) -> str:
    """Return a word."""
    return "PASS" if passed else "FAIL"


if __name__ == "__main__":
    sys.exit(main())
