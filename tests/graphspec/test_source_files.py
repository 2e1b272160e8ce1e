"""Real files and real bytes: what is not there, not text, too large or made to break a reader."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from graphspec.diagnostics import SpecError
from graphspec.limits import Limits
from graphspec.read.source import read_document
from graphspec.startup import paused_collection

ROOT = Path(__file__).parents[2]
READ = """
import pathlib, sys
from graphspec.diagnostics import SpecError
from graphspec.read.source import read_document
try:
    read_document(pathlib.Path(sys.argv[1]))
except SpecError as error:
    print(error)
    sys.exit(1)
"""


def find_problem(path, **options):
    """Return the only problem of a file."""
    with pytest.raises(SpecError, match=r"^error\[") as raised:
        read_document(path, **options)
    (diagnostic,) = raised.value.diagnostics
    return diagnostic


def write(path, content):
    path.write_bytes(content)
    return path


def read_in_new_process(path):
    return subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("name", ["deep.yaml", "deep.json"])
@pytest.mark.parametrize(
    "content",
    [b"[" * 50_000, b'{"a":' * 50_000, b"[" * 50_000 + b"]" * 50_000],
    ids=["lists", "mappings", "closed"],  # pytest hands the name of a test to new processes, which must not be so long
)
def test_50_000_nested_brackets_give_a_diagnostic_and_no_crash(tmp_path, name, content):
    done = read_in_new_process(write(tmp_path / name, content))
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("error[GS014]: collections are nested more than 64 deep")


@pytest.mark.parametrize(
    "content", [b"- " * 50_000, b"? " * 50_000, b"a:\n" + b"".join(b" " * i + b"-\n" for i in range(300))]
)
def test_deep_block_collections_give_a_diagnostic_and_no_crash(tmp_path, content):
    done = read_in_new_process(write(tmp_path / "deep.yaml", content))
    assert (done.returncode, done.stderr) == (1, "")
    assert "error[GS014]" in done.stdout


def test_64_levels_are_allowed_and_65_are_not():
    assert read_document("[" * 64 + "]" * 64).data == read_document("[" * 64 + "]" * 64, name="a.json").data
    with pytest.raises(SpecError, match="GS014"):
        read_document("[" * 65 + "]" * 65)


def test_a_file_of_17_megabytes_is_too_large(tmp_path):
    problem = find_problem(write(tmp_path / "big.yaml", b"a: 1\n" * (17 * 2**20 // 5)))
    assert (problem.code, problem.span.place) == ("GS012", f"{tmp_path}/big.yaml:1:1")


def test_a_document_of_as_many_bytes_as_allowed_is_read(tmp_path):
    path = write(tmp_path / "a.yaml", "a: é\n".encode())
    assert read_document(path, limits=Limits(bytes=6)).data == {"a": "é"}
    assert find_problem(path, limits=Limits(bytes=5)).code == "GS012"


def test_a_device_without_end_is_too_large(tmp_path):
    path = tmp_path / "endless.yaml"
    path.symlink_to("/dev/zero")
    assert find_problem(path).code == "GS012"


@pytest.mark.parametrize(("text", "name"), [("[1, 2, {a: 3}]", "a.yaml"), ('[1, 2, {"a": 3}]', "a.json")])
def test_keys_values_and_collections_are_counted(text, name):
    assert read_document(text, name=name, limits=Limits(nodes=6)).data == [1, 2, {"a": 3}]
    with pytest.raises(SpecError, match=r"GS013.*more than 5 keys"):
        read_document(text, name=name, limits=Limits(nodes=5))


@pytest.mark.parametrize(
    ("content", "line", "column"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", 1, 1),
        (b"a: 1\nb: caf\xe9\n", 2, 7),
        ("a: 1\n".encode("utf-16"), 1, 1),
        (b"a: \xed\xa0\x80", 1, 4),
    ],
)
def test_bytes_that_are_not_utf8_have_a_place(tmp_path, content, line, column):
    problem = find_problem(write(tmp_path / "a.yaml", content))
    assert (problem.code, problem.span.line, problem.span.column) == ("GS002", line, column)


def test_a_binary_file_is_called_one_and_not_shown(tmp_path):
    with pytest.raises(SpecError, match="this is a binary file") as raised:
        read_document(write(tmp_path / "a.yaml", bytes(range(256)) * 100))
    assert len(str(raised.value)) < 400


def test_a_text_of_another_encoding_is_shown(tmp_path):
    with pytest.raises(SpecError, match=r"byte 0xe9 is not UTF-8[\s\S]*b: caf\ufffd"):
        read_document(write(tmp_path / "a.yaml", b"a: 1\nb: caf\xe9\n"))


def test_a_file_that_is_missing_gets_the_name_of_one_that_is_not(tmp_path):
    write(tmp_path / "gan.yaml", b"a: 1")
    problem = find_problem(tmp_path / "gna.yaml")
    assert problem.code == "GS016"
    assert problem.help == f"perhaps it is '{tmp_path}/gan.yaml'"


def test_a_directory_is_not_a_document(tmp_path):
    assert find_problem(tmp_path).code == "GS017"


@pytest.mark.parametrize("name", ["a.yaml/b", "x" * 5000, "null\x00character"])
def test_a_path_that_cannot_be_opened_is_told_with_the_reason(tmp_path, name):
    write(tmp_path / "a.yaml", b"a: 1")
    problem = find_problem(tmp_path / name)
    assert problem.code == "GS018"
    assert problem.message.rpartition(": ")[2] in ("not a directory", "file name too long", "embedded null byte")


def test_the_garbage_collector_is_as_it_was_after_a_document_and_after_an_error():
    read_document("a: 1")
    with pytest.raises(SpecError, match="GS004"):
        read_document("a: [")
    assert gc.isenabled()


def test_the_garbage_collector_goes_on_after_documents_that_are_read_in_threads():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change between any two instructions
    work = paused_collection(lambda: list(range(20)))
    try:
        for _ in range(20):
            threads = [threading.Thread(target=lambda: [work() for _ in range(500)]) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert gc.isenabled()
    finally:
        sys.setswitchinterval(interval)
        gc.enable()
