"""The published schema in the YAML language server that editors use: completions, hover texts and errors.

The server comes from npm, with the versions of package-lock.json, into the cache of pytest.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock
from lsprotocol import types

from runtime.cli import execute
from tests.lsp.editor import Editor

HERE = Path(__file__).parent
MANIFESTS = ("package.json", "package-lock.json")
SPEC = """# yaml-language-server: $schema=graphspec.schema.json
graphspec: 1
name: tiny
inputs:
  x: {shape: [batch, 8]}
models:
  net:
    layers: [{linear: 4}, relu]
    optimizer: {name: adam, lr: 1e-3}
ops:
  y: {forward: net, inputs: x}
  error: {loss: mse, inputs: [y, 0.0]}
  learn: {update: net, loss: error, clip: {norm: 1.0}}
data:
  train: {source: digits, batch: 8}
run: {steps: 10}
"""


@pytest.fixture(scope="session")
def installed(request, tmp_path_factory):
    """Return the script of the server, installed by npm; skip where that is impossible."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm, which installs the YAML language server, is missing")
    key = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in MANIFESTS)).hexdigest()[:12]
    cache = getattr(request.config, "cache", None)  # without the plugin it is installed for this session
    name = f"yaml-language-server-{key}"
    folder = tmp_path_factory.mktemp(name) if cache is None else cache.mkdir(name)
    script = folder / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"
    with FileLock(folder / "lock"):
        if not (folder / "done").exists():
            for name in MANIFESTS:
                shutil.copy(HERE / name, folder)
            options = ("--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=30000")
            command = [npm, "ci", *options]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
            if done.returncode:
                pytest.skip(f"npm cannot install the YAML language server: {done.stderr.strip()[-300:]}")
            (folder / "done").touch()
    return node, str(script)


@pytest.fixture(scope="module")
def editor(installed, tmp_path_factory):
    """Return an editor with the YAML language server and the schema as `stepgraph schema` writes it."""
    folder = tmp_path_factory.mktemp("yaml")
    assert execute(["schema", "-o", str(folder / "graphspec.schema.json")]) == 0
    made = Editor(folder, command=(*installed, "--stdio"))
    settings = {"yaml": {"validate": True, "hover": True, "completion": True, "schemaStore": {"enable": False}}}
    made._do(made.client.workspace_did_change_configuration, types.DidChangeConfigurationParams(settings))
    yield made
    made.quit()


def test_a_sound_spec_has_no_problem(editor):
    uri = editor.uri("sound.yaml")
    editor.write("sound.yaml", SPEC.replace("run:", "runs:"))
    editor.wait(lambda found: uri in found and len(found[uri].diagnostics) > 0)
    editor.write("sound.yaml", SPEC)
    editor.wait(lambda found: not found[uri].diagnostics)
    editor.close("sound.yaml")


WRONG = {
    "an unknown key": ("clip: {norm", "clip: {nrm", "nrm", "nrm is not allowed"),
    "an unknown key of a section": ("run: {steps", "run: {stops", "stops", "stops is not allowed"),
    "an unknown option": ("lr: 1e-3", "learning_rate: 1e-3", "learning_rate", "learning_rate is not allowed"),
    "a wrong type": ("batch: 8}", "batch: many}", "many", "integer"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_shown(editor, case):
    before, after, where, message = case
    name = f"{where}.yaml"
    uri = editor.uri(name)
    editor.write(name, SPEC.replace(before, after, 1))
    editor.wait(lambda found: uri in found and len(found[uri].diagnostics) > 0)
    found = {editor.read(name, each.range): each.message for each in editor.published[uri].diagnostics}
    assert message in found[where]
    editor.close(name)


HOVER = {
    "a key of the document": ("name: tiny", 1, "The name of the spec"),
    "a key of an op": ("forward: net", 2, "The model that is called, or a derived one."),
    "a key inside a key": ("norm: 1.0", 1, "The longest the gradients may be"),
    "a layer": ("linear: 4", 2, "The product x W^T + b over the last axis."),
    "an option of a rule": ("lr: 1e-3", 1, "Learning rate."),
    "a function": ("loss: mse", 7, "squared difference"),
    "a source": ("source: digits", 9, "The bundled images of handwritten digits."),
    "a name of an op": ("learn:", 1, "Step models: from a loss"),
}


@pytest.mark.parametrize("case", HOVER.values(), ids=HOVER)
def test_hover(editor, case):
    words, after, expected = case
    editor.write("hover.yaml", SPEC)
    assert expected in editor.hover("hover.yaml", words, after).replace("\\", "")
    editor.close("hover.yaml")


COMPLETIONS = {
    "sections": ("run: {steps: 10}\n", "|\n", {"run": "How `stepgraph run` trains.", "seed": "", "precision": ""}),
    "keys of a section": ("run: {steps: 10}\n", "run:\n  |\n", {"steps": "How many steps are run.", "eval": ""}),
    "keys of a model": ("    layers:", "    |\n    layers:", {"buffers": "", "weights": "", "groups": ""}),
    "kinds of ops": ("  y: {forward: net, inputs: x}", "  y:\n    |", {
        "forward": "The model that is called, or a derived one.", "update": "The models that are stepped.",
        "expr": "", "use": ""}),
    "functions of losses": ("loss: mse", "loss: |", {"mse": "squared difference", "huber": "", "cross_entropy": ""}),
    "layers": ("4}, relu]", "4}, |]", {"relu": "The greater of 0 and x.", "flatten": "All axes but the batch as one."}),
    "rules of optimizers": ("optimizer: {name: adam, lr: 1e-3}", "optimizer: |", {"adam": "", "lion": ""}),
}  # fmt: skip


@pytest.mark.parametrize("case", COMPLETIONS.values(), ids=COMPLETIONS)
def test_completion(editor, case):
    before, after, expected = case
    found = editor.complete("complete.yaml", SPEC.replace(before, after, 1))
    assert expected.keys() <= found.keys()
    told = {name: read(each.documentation) for name, each in found.items()}
    assert {name: text for name, text in expected.items() if text not in told[name]} == {}
    editor.close("complete.yaml")


def read(documentation) -> str:
    """Return the text of what an item says."""
    return documentation if isinstance(documentation, str) else getattr(documentation, "value", "")
