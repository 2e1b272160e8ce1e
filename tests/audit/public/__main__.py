"""Training scripts in libraries' source distributions, to run an audit on: `python -m tests.audit.public fetch|run`.

`fetch FOLDER` downloads and unpacks what `scripts.toml` names, with pip and a package index, and compares the digests.
`run FOLDER [NAME ...]` runs the scripts there unmodified, offline, on the CPU and on generated data, until they have
made some updates; `run --audit` runs `stepgraph audit` on them instead. This repository keeps nothing of theirs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
HARNESS = HERE / "harness"
UPDATES = 4
LIMIT = 240  # seconds


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


def run(folder: Path, names: list[str], audit: bool) -> int:
    """Run the scripts, write their outputs below `results`, and return how many failed."""
    failed = 0
    for script in read()[1]:
        if names and not any(name in script.name for name in names):
            continue
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


def command(audit: bool) -> list[str]:
    """Return the words that come before the script's path."""
    limit = ["timeout", str(LIMIT)]
    if audit:
        return [*limit, sys.executable, "-m", "runtime", "audit"]
    return [*limit, sys.executable, str(HARNESS / "stop_after.py"), str(UPDATES)]


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
    parser.add_argument("--audit", action="store_true", help="run `stepgraph audit` on them")
    arguments = parser.parse_args()
    if arguments.do == "fetch":
        fetch(arguments.folder)
    elif run(arguments.folder, arguments.names, arguments.audit):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
