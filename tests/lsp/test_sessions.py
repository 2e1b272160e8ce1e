"""The server as a process: how it starts and ends, a spec that is typed, and texts that are none or too large."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lsprotocol import types

from runtime.lsp import answers, server
from tests.lsp.editor import ROOT, Editor

GAN = (ROOT / "examples" / "simultaneous-gan" / "simultaneous-gan.yaml").read_text()
SMALL = """graphspec: 1
name: small
inputs: {x: {shape: [batch, 8]}}
models: {net: {layers: [{linear: 4}], optimizer: sgd}}
ops: {y: {forward: net, inputs: x}, learn: {update: net, loss: "mean(y)"}}
"""


def test_a_spec_that_is_typed_character_by_character(editor):
    text = re.sub(r"#.*", "", GAN)
    for end in range(len(text)):
        editor.write("typed.yaml", text[:end])
        if end % 7 == 0:  # an editor asks while its user goes on
            place = editor.place("typed.yaml", text[:end], end)
            editor.complete_at("typed.yaml", place)
    assert editor.check("typed.yaml", text) == []
    assert editor.logged == []
    editor.close("typed.yaml")


def test_every_beginning_of_a_spec_has_completions_and_findings_without_an_internal_error(editor):
    # Cut inside of words, quotes and brackets; each is checked at once, as it is opened.
    for end in range(GAN.index("name:"), len(GAN), 23):
        for rest in ("", "\n" + "\n".join(GAN[end:].split("\n")[1:])):
            text = GAN[:end] + rest
            editor.check("cut.yaml", text)
            editor.complete_at("cut.yaml", editor.place("cut.yaml", GAN[:end], end))
            editor.outline("cut.yaml")
            editor.close("cut.yaml")
    assert editor.logged == []


@pytest.mark.parametrize(
    "text",
    [
        "graphspec: 1",
        "graphspec:",
        "graphspec: 1\n\x00\x01",
        "graphspec: 1\n- a\n",
        "graphspec: 1\nops: 3\nmodels: [a]\nvars: x\nblocks: {b: 1}\ndata: {train: 2}\n",
        "graphspec: 1\nops: {a: {update: ${x}}}\n",
        'graphspec: 1\nops: {a: {expr: "("}}\n',
        "graphspec: 1\nname: &a x\nops: {? [a] : b, *a : c}\n",
        '{"graphspec": 1, "name": "\\ud83d"}',
        "graphspec: 1\nname: \u2028x\u0085y\n",
        f"graphspec: 1\nops: {'[' * 500}",
        f"graphspec: 1\nops: {'{a: ' * 500}",
    ],
    ids=range(12),
)
def test_a_text_that_is_hardly_a_spec_is_an_error_of_the_text(editor, text):
    assert editor.check("odd.yaml", text)
    for at in (0, len(text) // 2, len(text)):
        place = editor.place("odd.yaml", text, at)
        editor.complete_at("odd.yaml", place)
        params = types.HoverParams(types.TextDocumentIdentifier(editor.uri("odd.yaml")), place)
        editor.run(editor.client.text_document_hover_async(params))
    editor.outline("odd.yaml")
    assert editor.logged == []
    editor.close("odd.yaml")


def test_an_empty_text_is_no_spec(editor):
    editor.write("empty.yaml", "")
    assert editor.complete_at("empty.yaml", types.Position(0, 0)) == {}
    assert editor.uri("empty.yaml") not in editor.published


def test_a_large_spec_is_checked_and_does_not_stop_the_others(editor):
    ops = "\n".join(f"  v{index}: {{call: neg, inputs: x}}" for index in range(3000))
    large = (
        SMALL.replace("ops: {", f"ops:\n{ops}\n  y: {{", 1)
        .replace("y: {y: {", "y: {")
        .replace(
            'inputs: x}, learn: {update: net, loss: "mean(y)"}}', 'inputs: x}\n  learn: {update: net, loss: "mean(y)"}'
        )
    )
    editor.write("large.yaml", large)
    started = time.monotonic()
    assert editor.check("beside.yaml", SMALL) == []
    assert time.monotonic() - started < 30
    assert "v2999" in editor.complete("large.yaml", large.replace("forward: net, inputs: x", "forward: net, inputs: |"))
    editor.close("large.yaml")
    editor.close("beside.yaml")


def test_an_answer_that_is_no_longer_wanted_is_not_waited_for(editor):
    editor.check("wanted.yaml", SMALL)
    params = types.HoverParams(types.TextDocumentIdentifier(editor.uri("wanted.yaml")), types.Position(4, 6))

    async def ask_and_cancel():
        protocol = editor.client.protocol
        future = protocol.send_request_async(types.TEXT_DOCUMENT_HOVER, params)
        task = asyncio.ensure_future(future)
        await asyncio.sleep(0)
        (identity,) = protocol._request_futures
        editor.client.cancel_request(types.CancelParams(id=identity))
        return await asyncio.wait([task], timeout=30)

    done, pending = editor.run(ask_and_cancel())
    assert not pending
    done.pop().exception()
    assert "`y`: [batch, 4] float32" in editor.hover("wanted.yaml", "y: {", 0)
    editor.close("wanted.yaml")


def test_an_error_of_the_server_is_logged_and_it_goes_on(monkeypatch, tmp_path):
    made = server.make_server("torch")
    logged = []
    monkeypatch.setattr(made, "_log", logged.append)
    snapshot = server.Snapshot(path=tmp_path / "a.yaml", text=SMALL, opened={})
    made.sessions["file:///a.yaml"] = server.Session(uri="file:///a.yaml", snapshot=snapshot)
    monkeypatch.setattr(type(made), "units", server.Units())
    monkeypatch.setattr(made, "_list_opened", dict)

    def fail(question: answers.Question, params: object) -> None:
        raise ZeroDivisionError

    params = types.HoverParams(types.TextDocumentIdentifier("file:///a.yaml"), types.Position(0, 0))
    assert asyncio.run(made.answer(fail)(params)) is None
    assert logged == ["file:///a.yaml"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("graphspec: 1", True),
        ("\ufeffgraphspec : 1", True),
        ('# a spec\n"graphspec": 1', True),
        ('{"name": "a}", "vars": {"a": [1]}, "graphspec": 1}', True),
        ("{name: a, graphspec: 1", True),
        ("name: a\nops:\n  graphspec: 1", False),
        ('{"dependencies": {"graphspec": "1"}}', False),
        ('{"name": "graphspec", "scripts": ["graphspec"]}', False),
        ("# graphspec: 1", False),
        ("", False),
    ],
)
def test_a_spec_has_its_key_at_the_root(text, expected):
    assert server.is_spec(text) is expected


def test_nothing_that_a_spec_names_is_imported(tmp_path):
    (tmp_path / "untouchable.py").write_text("open('touched', 'w').close()")
    editor = Editor(tmp_path)
    text = SMALL.replace("{layers: [{linear: 4}]", '{class: "untouchable:Net", traits: {buffers: false}').replace(
        '"mean(y)"}', 'error}, error: {loss: "untouchable:error", inputs: y}'
    )
    found = editor.check("named.yaml", text)
    assert [each for each in found if each.severity == types.DiagnosticSeverity.Error] == []
    assert "untouchable:Net" in editor.hover("named.yaml", "net: {", 1)
    editor.complete("named.yaml", text.replace("untouchable:Net", "untouchable:|"))
    assert editor.quit() == 0
    assert not (tmp_path / "touched").exists()


def test_the_server_says_what_it_can(editor):
    told = editor.server
    assert told.text_document_sync.change == types.TextDocumentSyncKind.Full
    assert all((
        told.completion_provider, told.hover_provider, told.definition_provider, told.references_provider,
        told.rename_provider.prepare_provider, told.document_symbol_provider, told.code_action_provider,
    ))  # fmt: skip


def test_goodbye_ends_the_process_with_0_and_leaving_without_it_with_1(tmp_path):
    polite = Editor(tmp_path)
    assert polite.check("a.yaml", SMALL) == []
    assert polite.quit() == 0
    rude = Editor(tmp_path)
    rude._do(rude.client.exit, None)
    assert rude.finish() == 1


@pytest.mark.parametrize("state", ["idle", "at work"])
def test_the_server_ends_when_its_editor_dies(tmp_path, state):
    # The editor is a process of its own, which is killed; the server's end is seen by its process.
    program = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.lsp.editor import Editor
editor = Editor(Path({str(tmp_path)!r}))
editor.check("a.yaml", {SMALL!r})
if {state!r} != "idle":
    editor.write("a.yaml", {SMALL!r} + "# more")
print(editor.process.pid, flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    server_id = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    end = time.monotonic() + 30
    while Path(f"/proc/{server_id}").exists() and _state(server_id) != "Z":
        assert time.monotonic() < end, "the server still runs"
        time.sleep(0.05)


def _state(process_id: int) -> str:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def test_ctrl_c_ends_it(tmp_path):
    editor = Editor(tmp_path)
    os.kill(editor.process.pid, signal.SIGINT)
    assert editor.finish() == -signal.SIGINT


def test_what_is_printed_does_not_get_between_the_messages(tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from runtime.lsp import snapshot
check = snapshot.compile_step
def loud(*args, **options):
    print("noise")
    return check(*args, **options)
snapshot.compile_step = loud
from runtime.cli import main
main(["lsp"])
"""
    (tmp_path / "loud.py").write_text(program)
    editor = Editor(tmp_path, command=[sys.executable, "loud.py"])
    assert editor.check("a.yaml", SMALL) == []
    assert editor.quit() == 0


def test_without_pygls_the_command_says_what_to_install(tmp_path):
    program = "import sys; sys.modules['pygls'] = None; from runtime.cli import main; main(['lsp'])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "GS255" in done.stderr
    assert "pip install 'stepgraph[editor]'" in done.stderr
