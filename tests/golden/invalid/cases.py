"""The broken specs, and what the user must be told of each, written from what is wrong with it and not from output."""

from __future__ import annotations

from tests.golden.invalid.case import Case, check, run
from tests.golden.invalid.slips import BLOCKS, EXPRESSIONS, INCLUDES, SLIPS

_BOMB = {"GS007 3:6": "under `vars`"} | {
    key: words
    for line in range(4, 12)
    for key, words in ((f"GS007 {line}:6", "under `vars`"), (f"GS008 {line}:10", "write out the collection"))
}

TEXTS = (
    check("empty.yaml", {"GS001 1:1": "at least `graphspec: 1`"}),
    check("binary.yaml", {"GS002 1:1": "UTF-8 text"}),
    check("latin1.yaml", {"GS002 2:10": "save the file as UTF-8"}),
    check("utf16.yaml", {"GS002 1:1": "it looks like UTF-16"}),
    check("tab_indent.yaml", {"GS003 4:1": "indent with spaces"}),
    check("unclosed_bracket.yaml", {"GS004 4:1": "close the mapping with `}`"}),
    check("duplicate_key.yaml", {"GS005 6:3": "rename or remove one of them"}),
    check("eval_tag.yaml", {"GS006 5:59": 'needs quotes: "!eval"'}),
    check("merge_key.yaml", {"GS007 6:10": "under `vars`", "GS009 7:12": "a variable", "GS008 7:16": "single values"}),
    check("alias_bomb.yaml", _BOMB),
    check("two_documents.yaml", {"GS011 3:1": "a separate file"}),
    check("too_large.yaml", {"GS012 1:1": "put data into files"}),
    check("deep.yaml", {"GS014 3:69": "close a bracket"}),
    check("deep.json", {"GS014 3:72": "close a bracket"}),
    check("trailing_comma.json", {"GS020 4:43": "no trailing commas"}),
    check("two_version.yaml", {"GS016": "'two_versions.yaml'"}, name="missing_file"),
    check("folder.yaml", {"GS017": "name the spec's file in it"}, name="directory"),
)
"""Texts that are no document: most of them are written by documents.py."""

FIELDS = (
    check(
        "unknown_keys.yaml",
        {
            "GS040 3:1": "did you mean 'models'?",
            "GS040 5:32": "did you mean 'dtype'?",
            "GS112 10:27": "did you mean 'kernel'?",
            "GS112 13:41": "did you mean 'betas'?",
            "GS040 14:5": "its keys are class, args, layers",
            "GS040 18:14": "did you mean 'buffers'?",
            "GS040 23:47": "did you mean 'norm'?",
            "GS040 24:46": "did you mean 'every'?",
            "GS040 25:32": "did you mean 'batch'?",
            "GS040 26:7": "did you mean 'steps'?",
        },
    ),
    check(
        "wrong_types.yaml",
        {
            "GS041 4:14": "`[batch]`",
            "GS043 5:33": "did you mean 'float32'?",
            "GS041 7:17": "put brackets around it",
            "GS113 8:60": "learning rate",
            "GS041 10:20": "without the brackets",
            "GS041 11:50": "remove the quotes",
            "GS041 13:14": "write a whole number as in",
        },
    ),
    check(
        "missing_keys.yaml",
        {
            "GS042 1:1": "add `name: ...`",
            "GS053 4:3": "`layers: [...]`",
            "GS053 6:3": "`shape: [batch, 32]`",
            "GS053 8:3": "`loss: my_loss`",
        },
    ),
    check(
        "option_values.yaml",
        {
            "GS113 5:51": "fraction of elements dropped",
            "GS113 5:86": "from 0 up",
            "GS113 5:97": "[0.9, 0.999]",
            "GS113 8:54": "one may be -1",
            "GS113 9:54": "a `:` for each axis",
            "GS043 10:52": "did you mean 'mean'?",
            "GS044 11:50": "a number greater than 0",
            "GS044 12:39": "a number of at least 1",
        },
    ),
    check(
        "bad_duration.yaml",
        {"GS050 10:44": "`100 steps`", "GS057 10:57": "`every: 5`", "GS050 11:46": "did you mean 'updates'?"},
    ),
    check("op_kinds.yaml", {"GS051 7:11": "did you mean 'forward'?", "GS052 9:24": "split it into several ops"}),
    check(
        "not_built.yaml",
        {
            "GS056 9:37": "`optimizer: {name: adam, sparse: lazy}`",
            "GS045 10:37": "`1000 steps`",
        },
    ),
    check(
        "unknown_variable.yaml", {"GS030 4:30": "did you mean 'latent'?", "GS032 6:60": "expressions are for `vars`"}
    ),
    check(
        "wrong_variable.yaml",
        {
            "GS113 3:12": "`${lr}` is used at 4 places where it does not fit",
            "GS113 3:25": "wrong_variable.yaml:6:25, wrong_variable.yaml:7:25",
            "GS110 3:34": "did you mean 'mse'?",
            "GS103 12:20": "fix the name",
        },
    ),
    check(
        "override.yaml",
        {
            "GS037 1:12": "did you mean 'optimizer'?",
            "GS038 1:18": "assign a mapping",
            "GS036 1:1": "`vars.lr=1e-3`",
            "GS037 1:6": "did you mean 'lr'?",
        },
        *("-s", "vars.lrr=0.2", "-s", "models.net.optimiser.lr=1", "-s", "vars.lr", "-s", "ops.learn.update.x=1"),
    ),
    check(
        "override.yaml",
        {"GS040 1:11": "did you mean 'inputs'?", "GS103 1:18": "did you mean 'net'", "GS113 6:59": "learning rate"},
        *("-s", "vars.lr=fast", "-s", "ops.learn.update=nut", "-s", "ops.guess.input=x"),
        name="override_values",
    ),
)
"""Documents whose fields are wrong."""

NAMES = (
    check(
        "unknown_names.yaml",
        {
            "GS103 7:19": "did you mean 'generator' (line 5)?",
            "GS104 7:38": "did you mean 'image' (line 3)?",
            "GS104 8:37": "did you mean 'label' (line 3)?",
            "GS104 9:36": "did you mean 'error' (line 8)?",
            "GS105 10:53": "did you mean 'learn' (line 9)?",
            "GS103 11:35": "declare it under `models:`",
            "GS104 12:11": "did you mean 'error' (line 8)?",
        },
    ),
    check(
        "unknown_loss.yaml", {"GS110 8:17": "did you mean 'bce_with_logits' or 'bce'?", "GS110 9:17": "mean 'tanh'?"}
    ),
    check(
        "unknown_layer.yaml", {"GS115 5:19": "mean 'linear'?", "GS115 5:31": "mean 'relu'?", "GS113 5:47": "dropped"}
    ),
    check(
        "clashing_names.yaml",
        {
            "GS102 3:60": "not a Python keyword",
            "GS101 5:3": "rename one of them",
            "GS108 6:16": "give one of them a `class`",
            "GS102 9:3": "does not begin with a digit",
            "GS109 11:25": "write it once",
        },
    ),
    check(
        "number_of_inputs.yaml",
        {"GS111 7:33": "`call: concat`", "GS111 8:30": "squared difference", "GS111 9:29": "a / b"},
    ),
    check("no_optimizer.yaml", {"GS107 9:19": "write `optimizer: adam` in model 'net'"}),
    check("not_a_loss.yaml", {"GS118 9:30": "a loss or a call"}),
    check("wrong_mode.yaml", {"GS119 9:30": "change `mode` of op 'guess'", "GS120 9:56": "both count from 1"}),
    check(
        "gradient_sets.yaml",
        {"GS117 11:31": "the calls `add`", "GS122 12:19": "`wrt: other`", "GS117 13:34": "a `gradient` op"},
    ),
    check(
        "digits.yaml",
        {
            "GS223 14:3": "`columns: {weight: ...}`",
            "GS228 14:3": "`args: {flatten: true}`",
            "GS223 14:48": "did you mean 'image'?",
            "GS229 15:62": "leave it out",
            "GS229 15:74": "remove it",
            "GS229 15:99": "did you mean 'range'?",
            "GS227 16:34": "`drop_last: false`",
            "GS229 16:72": "`true` gives rows",
            "GS229 16:82": "`range: [-1, 1]`",
        },
    ),
    check("random_shape.yaml", {"GS121 7:31": "did you mean 'batch'?"}),
)
"""Documents whose names or references are wrong."""

STEPS = (
    check("cycle.yaml", {"E-CYCLE 8:45": "remove one `after`", "E-CYCLE 12:3": "that exists earlier"}),
    check("no_gradient.yaml", {"E-NO-GRADIENT 16:20": "computed from model 'generator'"}),
    check("no_gradient_stopped.yaml", {"E-NO-GRADIENT 13:19": "`stop`", "E-NO-GRADIENT 13:42": "`stop`"}),
    check(
        "shape_mismatch.yaml",
        {"E-SHAPE 5:62": "add `flatten`", "E-SHAPE 8:19": "a smaller kernel", "E-SHAPE 16:36": "`reshape` one of them"},
    ),
    check(
        "paired_rows.yaml",
        {
            "E-SHAPE 11:34": "9:26, where `mul` pairs [batch] with [batch, 1]",
            "E-SHAPE 15:30": "14:3, where `mul` pairs [batch, 1] with [batch]: `reshape`",
        },
    ),
    check("one_model_two_inputs.yaml", {"E-SHAPE 8:38": "declare a second model"}),
    check("loss_with_rows.yaml", {"E-SHAPE 10:30": "take its mean", "E-SHAPE 13:38": "take its mean"}),
    check(
        "rows.yaml",
        {
            "E-ROWS 7:43": "write `sparse: dense`",
            "E-ROWS 8:5": "name other parameters",
            "E-ROWS 9:28": "remove `frozen`",
            "E-ROWS 13:35": "name other parameters",
        },
    ),
    check("rows_of_sets.yaml", {"E-ROWS 11:3": "a sum of sets", "E-ROWS 15:35": "remove `missing`"}),
    check("unordered_writes.yaml", {"E-UNORDERED-WRITES 11:3": "write `after: step_error` on 'step_sparse'"}),
    Case("overlap", {"E-OVERLAP 12:18": "with one optimizer"}, ("emit", "overlap.yaml")),
    check("overlap_tied.yaml", {"E-OVERLAP 11:19": "write `optimizer:` on 'learn'"}),
    check(
        "ema_target.yaml",
        {"E-EMA-TARGET 14:32": "with `like:`", "E-EMA-TARGET 15:33": "with `like:`"},
    ),
    check(
        "buffers.yaml",
        {
            "E-BUFFERS 12:18": "`buffers: copy`",
            "E-BUFFERS 13:55": "`buffers: ignore`",
            "W-FROZEN-TRAIN 14:44": "remove `train: true`",
        },
    ),
    check(
        "recomputed.yaml",
        {"E-BUFFERS 12:59": "leave `buffers` out", "E-BUFFERS 13:42": "remove `recompute_buffers`"},
    ),
    check("recomputed_on.yaml", {"GS124 9:72": "declare it under `data`", "GS126 10:62": "`use: {eval: swap}`"}),
    Case("two_versions", {"E-TWO-VERSIONS 12:50": "`snapshot: true` on 'before'"}, ("plan", "two_versions.yaml")),
    Case(
        "defer_never",
        {"E-DEFER 14:56": "remove `defer: never`"},
        ("explain", "defer_never.yaml", "step_there"),
    ),
    check("images_not_returned.yaml", {"GS230 11:33": "add 'rows' to `outputs`"}),
    check("images_of_rows.yaml", {"GS230 11:33": "`reshape` gives rows of pixels"}),
    check("absent_value.yaml", {"E-ABSENT 7:43": "on the update that needs it"}),
    check(
        "evaluated_loss.yaml",
        {"E-ABSENT 8:64": "on the update that needs it", "W-EVAL 11:16": "'penalty' (evaluated_loss.yaml:8:3)"},
    ),
    check("clocks.yaml", {"E-CLOCKS 10:55": "a small common multiple"}),
    Case(
        "processes_alone",
        {"GS257 3:11": "add `parallel: {kind: replicated}`"},
        ("run", "processes_alone.yaml", "--nproc", "2"),
    ),
    Case(
        "processes_local",
        {"GS257 3:11": "`buffers: mean`"},
        ("run", "processes_local.yaml", "--nproc", "2"),
    ),
    check("other_backend.yaml", {"E-BACKEND 5:16": "add `torch: pkg.mod:Name`", "E-BACKEND 8:3": "another backend"}),
)
"""Specs that are read without a problem, but declare no step."""

RUNS = (
    run("not_allowed", {"GS201 5:16": "--allow pieces --allow torch"}),
    run("unknown_module", {"GS202 5:16": "check the name `peices`"}, "peices"),
    run("unknown_class", {"GS203 5:16": "it defines Counting"}, "pieces"),
    run("reexported", {"GS204 5:16": "--allow torch"}, "pieces"),
    run("raises_on_import", {"GS205 5:16": "python -c 'import explodes'"}, "explodes"),
    run("not_python", {"GS205 5:16": "correct that line"}, "unfinished"),
    run("false_trait", {"GS206 5:67": "write `buffers: true`"}, "pieces"),
    run("raises_in_forward", {"GS210 7:3": "pieces.py:27 in scaled: raise ValueError"}, "pieces"),
    run("raises_while_training", {"GS210 7:3": "in step 4 of mode train"}, "pieces"),
    run("raises_when_made", {"GS210 5:3": "pieces.py:43 in __init__: raise FileNotFoundError"}, "pieces"),
    run("loss_raises", {"GS210 8:3": "pieces.py:64 in strict_loss: raise TypeError"}, "pieces"),
    run("class_input_shape", {"GS210 7:3": "called with x: float32 [8, 4]"}, "pieces"),
    run("class_takes_other_args", {"GS211 5:34": "compare `args` with what pieces:Net takes"}, "pieces"),
    run("class_output_shape", {"E-SHAPE 8:38": "`reshape` one of them"}, "pieces"),
    run("unused_parameter", {"GS212 9:3": "take unused parameters out"}, "pieces"),
    run("no_data", {"GS220 1:1": "source: digits"}),
    run("pickled_data", {"GS222 10:35": "numpy.savez"}),
    run("data_misses_input", {"GS223 10:8": "`columns: {target: ...}`"}),
    run("source_misses_input", {"GS223 10:8": "`columns: {y: ...}`"}, "pieces"),
    run("source_raises", {"GS226 10:8": "pieces.py:79 in __getitem__: raise ConnectionError"}, "pieces"),
    run("few_samples", {"GS227 10:54": "make `batch` smaller"}),
    run("data_shape", {"GS228 10:8": "`shape: [batch, 4]`"}),
)
"""Steps that can be planned, but not run."""

CASES = (*TEXTS, *SLIPS, *FIELDS, *NAMES, *EXPRESSIONS, *BLOCKS, *INCLUDES, *STEPS, *RUNS)
