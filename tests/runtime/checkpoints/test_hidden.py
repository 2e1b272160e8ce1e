"""Files that a killed process had not moved to their places."""

from __future__ import annotations

import os

from runtime.checkpoints.disk import hidden_sibling, remove_hidden, replace_file


def test_only_files_that_replace_file_makes_are_removed(tmp_path):
    ours = [hidden_sibling(tmp_path / name, "new") for name in ("run.json", "metrics.csv", "fake_25.png")]
    others = [tmp_path / name for name in ("run.json", ".hidden", ".run.json.new", "a-0123abcd.new", ".a-0123abcd.old")]
    for path in (*ours, *others):
        path.write_text("x")
    hidden_sibling(tmp_path / "export", "new").mkdir()  # of an export that may be under way
    (tmp_path / ".link-0123abcd.new").symlink_to(tmp_path / "run.json")
    remove_hidden(tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.is_file() and not path.is_symlink()}
    assert left == {path.name for path in others}
    assert len(os.listdir(tmp_path)) == len(others) + 2


def test_a_replacement_that_was_killed_leaves_what_is_removed(tmp_path, monkeypatch):
    path = tmp_path / "metrics.csv"
    replace_file(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: os._exit(9))
        child = os.fork()
        if child == 0:
            replace_file(path, b"new")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert len(os.listdir(tmp_path)) == 2
    remove_hidden(tmp_path)
    assert (os.listdir(tmp_path), path.read_bytes()) == (["metrics.csv"], b"old")
