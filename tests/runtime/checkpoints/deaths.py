"""Processes that die while they write checkpoints, and a look at what they leave; each prints how much it saw."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from runtime.checkpoints import Store, read_checkpoint
from tests.runtime.checkpoints.contents import content_at, same

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}
"""What Python tells an audit hook before it does it."""


def fork(work, *arguments):
    """Begin some work in a new process and return its number."""
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        work(*arguments)
    except BaseException as error:
        os.write(2, repr(error).encode())
        os._exit(1)
    os._exit(0)


def look(store, floor):
    """Clean up; require that every name is that of a whole checkpoint and the newest not older than it was."""
    left = [name for name in os.listdir(store.folder) if name.startswith(".")] if store.folder.is_dir() else []
    store.clean()
    assert not store.folder.is_dir() or not [name for name in os.listdir(store.folder) if name.startswith(".")]
    for step in store.steps():
        assert same(read_checkpoint(store.path(step)), content_at(step)), step
    newest = store.steps()[-1] if store.steps() else 0
    assert newest >= floor, (newest, floor)
    return newest, bool(left)


def write_on(store, step):
    """Write one checkpoint after another, each a second time over itself, and remove the older ones."""
    while True:
        step += 1
        for _ in range(2):
            store.save(content_at(step), step)
        store.prune(best=2)


def measure(folder):
    """Return how long a writer takes for one checkpoint, after Python has loaded whatever it needs for that."""
    store = Store(folder / "measured", keep=1)
    store.save(content_at(1), 1)
    began = time.perf_counter()
    store.save(content_at(1), 1)
    return time.perf_counter() - began


def kill_at_random(folder):
    """Kill a writer thirty times, more often if nothing was met, and let the next one go on from what is there."""
    store, newest, met, kills, usual = Store(folder / "checkpoints", keep=2), 0, 0, 0, measure(folder)
    while kills < 30 or (not (newest and met) and kills < 300):
        kills += 1
        pid = fork(write_on, store, newest)
        time.sleep(random.uniform(0, 5 * usual))
        os.kill(pid, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
        newest, left = look(store, newest)
        met += left
    store.prune(best=2)
    assert len(store.steps()) <= 3, store.steps()
    print(newest, met)


def die_before(event, store):
    """Write, replace and remove checkpoints, but die right before the event of that number."""
    count = 0

    def count_events(name, _):
        nonlocal count
        count += name in EVENTS
        if count == event:
            os._exit(9)

    sys.addaudithook(count_events)
    store.save(content_at(4), 4)
    store.save(content_at(4), 4)
    store.prune()


def die_everywhere(folder):
    """Let a writer die before its first event, before its second, and so on until it lives to the end."""
    store, event, met, code = Store(folder / "checkpoints", keep=2), 0, 0, 9
    while code == 9:
        event += 1
        shutil.rmtree(store.folder, ignore_errors=True)
        for step in (2, 3):
            store.save(content_at(step), step)
        code = os.waitstatus_to_exitcode(os.waitpid(fork(die_before, event, store), 0)[1])
        met += look(store, 3)[1]
        assert set(store.steps()) in ({2, 3}, {2, 3, 4}, {3, 4}), store.steps()
    assert (code, store.steps()) == (0, (3, 4))
    print(event - 1, met)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
