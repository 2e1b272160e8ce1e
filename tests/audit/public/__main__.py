"""Training scripts in libraries' source distributions, to run an audit on: `python -m tests.audit.public fetch|run`.

`fetch FOLDER` downloads and unpacks what `scripts.toml` names, with pip and a package index, and compares the digests.
`run FOLDER [NAME ...]` runs the scripts there unmodified, offline, on the CPU and on generated data, until they have
made some updates; `run --audit` runs `stepgraph audit` on them instead, and `run --equal` compares what a plain and an
audited run leave, bit for bit. This repository keeps nothing of theirs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
HARNESS = HERE / "harness"
UPDATES = 4
COMPARED = 8
"""So many updates are compared."""
NUMBER = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?")
LIMITED = ("timeout", "240", sys.executable)


@dataclass(frozen=True, kw_only=True)
class Script:
    """One published script and how it is run."""

    archive: str
    """Name and version of the distribution, as in its file name."""
    path: str
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Distributions that are installed beside the interpreter's own, without what they depend on."""
    inside: bool = False
    """Whether it runs in its own folder, where it finds its data."""

    @property
    def name(self) -> str:
        """Return how it is called in commands."""
        return f"{self.archive.rpartition('-')[0]}/{Path(self.path).stem}@{self.archive.rpartition('-')[2]}"


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A source distribution."""

    name: str
    version: str
    sha256: str


def read() -> tuple[list[Archive], list[Script]]:
    """Return the archives and scripts of the table."""
    table = tomllib.loads((HERE / "scripts.toml").read_text(encoding="utf-8"))
    sets = table["needs"]
    scripts = [
        Script(
            archive=each["archive"],
            path=each["path"],
            arguments=tuple(each.get("arguments", ())),
            needs=tuple(need for name in each.get("needs", ()) for need in sets[name]),
            inside=each.get("inside", False),
        )
        for each in table["script"]
    ]
    return [Archive(**each) for each in table["archive"]], scripts


def pip(*arguments: str) -> None:
    """Run pip, or stop with what it said."""
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pip {' '.join(arguments)}\n{done.stderr}")


def fetch(folder: Path) -> None:
    """Download and unpack the archives, and install what the scripts need."""
    archives, scripts = read()
    for each in archives:
        get(each, folder)
    for need in sorted({need for script in scripts for need in script.needs}):
        if not (folder / "needs" / need).exists():
            pip("install", "--quiet", "--no-deps", "--target", str(folder / "needs" / need), need)


def get(archive: Archive, folder: Path) -> None:
    """Download and unpack an archive, unless it is there."""
    into = folder / "unpacked" / f"{archive.name}-{archive.version}"
    if into.exists():
        return
    downloads = folder / "downloads" / into.name
    if not downloads.exists():
        wanted = f"{archive.name}=={archive.version}"
        pip(
            "download",
            "--quiet",
            "--no-binary",
            ":all:",
            "--no-deps",
            "--ignore-requires-python",
            "--dest",
            str(downloads),
            wanted,
        )
    file = next(downloads.iterdir())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != archive.sha256:
        raise SystemExit(f"{file.name} has the digest {digest}, not {archive.sha256}")
    with tarfile.open(file) as tar:
        tar.extractall(into.with_suffix(".part"), filter="data")
    shutil.move(next(into.with_suffix(".part").iterdir()), into)


def select(names: Sequence[str]) -> list[Script]:
    """Return the scripts with one of some parts in their name; all, where there are none."""
    return [each for each in read()[1] if not names or any(name in each.name for name in names)]


def run(folder: Path, names: Sequence[str], audit: bool) -> int:
    """Run the scripts, write their outputs below `results`, and return how many failed."""
    failed = 0
    for script in select(names):
        results = folder / "results" / ("audit" if audit else "plain") / script.name
        shutil.rmtree(results, ignore_errors=True)
        (results / "work").mkdir(parents=True)
        path = (folder / "unpacked" / script.archive / script.path).resolve()
        start = time.monotonic()
        with (results / "output.txt").open("w", encoding="utf-8") as output:
            code = subprocess.run(
                [*command(audit), str(path), *(["--"] if audit else []), *script.arguments],
                cwd=path.parent if script.inside else results / "work",
                env=environment(folder, script),
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        failed += code not in ((0, 1) if audit else (0,))
        print(f"{script.name}: {code} after {time.monotonic() - start:.0f} s", flush=True)
    return failed


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a run has left: a row of digests for each update, what it printed, and how it ended."""

    rows: tuple[Mapping[str, str], ...]
    printed: str
    code: int


def leave(folder: Path, script: Script, how: str) -> Left:
    """Run a script plainly or under an audit, from the same seeds and in the same folder each time."""
    results = folder / "results" / "equal" / script.name
    work = results / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    path = (folder / "unpacked" / script.archive / script.path).resolve()
    rows = (results / f"{how}.json").resolve()
    rows.unlink(missing_ok=True)
    done = subprocess.run(
        [*LIMITED, str(HARNESS / "leave.py"), str(rows), how, str(COMPARED), str(path), *script.arguments],
        cwd=path.parent if script.inside else work,
        env={**environment(folder, script), "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        errors="replace",
    )
    rows.with_suffix(".txt").write_text(done.stdout, encoding="utf-8")
    found = json.loads(rows.read_text(encoding="utf-8")) if rows.exists() else []
    return Left(rows=tuple(found), printed=done.stdout, code=done.returncode)


def differences(one: Left, other: Left) -> list[str]:
    """Return what differs between two runs, and from which update on."""
    told = list[str]()
    for number, (row, its) in enumerate(zip(one.rows, other.rows, strict=False), 1):
        told += [f"{each} at update {number}" for each in row if row[each] != its[each]]
        if told:
            break
    if len(one.rows) != len(other.rows):
        told.append(f"updates: {len(one.rows)} and {len(other.rows)}")
    if one.code != other.code:
        told.append(f"exit codes: {one.code} and {other.code}")
    return [*told, *printed_differences(one.printed, other.printed)]


def printed_differences(one: str, other: str) -> list[str]:
    """Return what stands before the numbers that differ; or, where more than numbers does, only that it does.

    Processes that a script starts may print their lines in another order.
    """
    if one != other and sorted(one.splitlines()) == sorted(other.splitlines()):
        return ["the order of printed lines"]
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return ["what is printed"]
    numbers = zip(NUMBER.finditer(one), NUMBER.finditer(other), strict=True)
    starts = [number.start() for number, its in numbers if number[0] != its[0]]
    before = (NUMBER.sub("#", one[:start].rpartition("\n")[2])[-12:] for start in starts)
    return sorted({f"numbers printed after `{each.strip()}`" for each in before})


def compare(folder: Path, names: Sequence[str]) -> int:
    """Compare what plain and audited runs of the scripts leave; return how many differ that two plain ones do not."""
    failed = 0
    for script in select(names):
        plain, audited = leave(folder, script, "plain"), leave(folder, script, "audit")
        found = differences(plain, audited)
        again = differences(plain, leave(folder, script, "plain")) if found else []
        said = "equal" if not found else f"differs: {', '.join(found)}; plain twice: {', '.join(again) or 'equal'}"
        counts = [digests.partition(" ")[0] for digests in (plain.rows[-1].values() if plain.rows else ())]
        print(f"{script.name}: {said} ({len(plain.rows)} updates of {'/'.join(counts[:4])}, {plain.code})", flush=True)
        failed += not plain.rows or bool(set(found) - set(again))
    return failed


def command(audit: bool) -> list[str]:
    """Return the words that come before the script's path."""
    if audit:
        return [*LIMITED, "-m", "runtime", "audit"]
    return [*LIMITED, str(HARNESS / "stop_after.py"), str(UPDATES)]


def environment(folder: Path, script: Script) -> dict[str, str]:
    """Return the environment: what the script needs on the path, its own distribution included, and no accelerator."""
    needs = [str((folder / "needs" / need).resolve()) for need in script.needs]
    path = [
        str(HARNESS),
        *needs,
        str((folder / "unpacked" / script.archive).resolve()),
        os.environ.get("PYTHONPATH", ""),
    ]
    quiet = {"CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg", "SDL_VIDEODRIVER": "dummy", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["fetch", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="parts of the names of the scripts to run")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--audit", action="store_true", help="run `stepgraph audit` on them")
    how.add_argument("--equal", action="store_true", help="compare what plain and audited runs leave")
    arguments = parser.parse_args()
    if arguments.do == "fetch":
        fetch(arguments.folder)
    elif arguments.equal:
        raise SystemExit(bool(compare(arguments.folder, arguments.names)))
    elif run(arguments.folder, arguments.names, arguments.audit):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
