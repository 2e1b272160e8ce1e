"""Slips that people make, and what they must be told: in expressions, blocks, shared files, and YAML itself."""

from __future__ import annotations

from tests.golden.invalid.case import check

EXPRESSIONS = (
    check(
        "expr_methods.yaml",
        {
            "GS068 9:38": "`stop(q)`",
            "GS068 10:15": "`mean(q, dim=1)`",
            "GS068 11:15": "`mean(q)`",
            "GS068 12:15": "`relu(q)`",
            "GS068 13:15": "`clip(q, min=0, max=1)`",
            "GS068 14:15": "`permute(state, dims=[1, 0])`",
            "GS068 15:19": "sizes and dtypes",
            "GS068 16:23": "write `pi`",
            "GS068 17:15": "`{forward: critic, inputs: ...}`",
            "GS068 18:23": "`reshape(x, shape=[-1, 8])`",
            "GS068 19:31": "reduction='sum'",
        },
    ),
    check(
        "expr_operators.yaml",
        {
            "GS068 9:21": "`(a > 0) & (b > 0)`",
            "GS068 10:21": "`(a > 0) | (b > 0)`",
            "GS068 11:21": "`~mask`",
            "GS068 12:16": "`x**2`",
            "GS068 13:17": "`{call: pkg.mod:fn, inputs: x}`",
            "GS068 14:17": "`{call: pkg.mod:fn, inputs: x}`",
            "GS068 15:21": "`(0 < x) & (x < 1)`",
            "GS068 16:15": "`(a > 0) & (b < 1)`",
            "GS068 17:15": "`where(condition, a, b)`",
            "GS068 18:23": "`(a > 0) & (b > 0)`",
            "GS068 19:16": "`~mask`",
        },
    ),
    check(
        "expr_text.yaml",
        {
            "GS068 9:15": "`2 * x`",
            "GS068 10:17": "`2 * x`",
            "GS068 11:15": "`2 * (a + b)`",
            "GS068 12:15": "`a * b`",
            "GS068 13:22": "close it with `)`",
            "GS068 14:31": "remove it",
            "GS068 15:22": "right of the `=`",
            "GS068 16:24": "`${name}`",
            "GS068 17:24": "`${name}`",
            "GS068 18:25": "`${name}`",
            "GS068 19:26": "`**2`",
            "GS068 20:23": "what follows the `+`",
            "GS068 21:16": "an op of its own",
            "GS068 22:25": "`${alpha}`",
            "GS068 23:16": "where it is read",
            "GS068 24:16": "where it is read",
        },
    ),
    check(
        "expr_fields.yaml",
        {
            "GS040 9:28": "an expression names what it reads",
            "GS040 10:25": "`mean(x, axis=1)`",
            "GS040 11:32": "`2.0 * mse(x, y)`",
            "GS052 12:8": "into two ops",
            "GS041 13:14": "between quotes",
        },
    ),
    check(
        "expr_kinds.yaml",
        {
            "GS051 9:8": "did you mean 'expr'?",
            "GS051 10:8": "did you mean 'expr'?",
            "GS051 11:7": "assign, call, choose, copy, ema, expr",
        },
    ),
    check(
        "expr_elsewhere.yaml",
        {
            "GS104 9:30": "`{expr: ...}`",
            "GS110 10:14": '`{expr: "q - reward"}`',
            "GS110 11:14": '`{expr: "mse(q, reward) + 1"}`',
            "GS110 12:16": '`{expr: "mean(q)"}`',
            "GS104 13:34": "`{expr: ...}`",
        },
    ),
    check(
        "expr_names.yaml",
        {
            "GS104 9:15": "did you mean 'reward' (line 4)?",
            "GS110 10:15": "did you mean 'minimum'",
            "GS110 11:15": "did you mean 'clip'?",
            "GS111 12:15": "the lesser of a and b",
            "GS111 13:15": "write `maximum`",
            "GS111 14:15": "`axis=1`",
            "GS111 15:15": "`min=0, max=1`",
            "GS112 16:23": "did you mean 'axis'?",
            "GS113 17:28": "the axis or axes to reduce",
            "GS043 18:41": "'mean', 'sum' or 'none'",
            "GS113 19:22": "a `:` for each axis",
            "GS113 20:22": "`call: gather`",
        },
    ),
    check("expr_part.yaml", {"GS104 10:32": "did you mean 'goal'"}),
    check("expr_number.yaml", {"GS068 9:18": "`${= 0.7 * temperature**2}`"}),
    check("expr_variable.yaml", {"GS030 9:26": "did you mean 'alpha'?"}),
    check("expr_shapes.yaml", {"E-SHAPE 9:39": "", "E-SHAPE 10:23": "", "E-SHAPE 11:22": ""}),
    check("expr_gradient_set.yaml", {"GS117 10:30": "`call: mul`", "GS117 11:17": "`add`, `sub`, `mul` and `lerp`"}),
    check("expr_lazy_penalty.yaml", {"E-ABSENT 9:49": "its factor is its `weight`"}),
)
"""Expressions, as a newcomer from PyTorch writes them."""

BLOCKS = (
    check("block_without_outputs.yaml", {"GS042 8:3": "`outputs: ...`"}),
    check(
        "block_inputs.yaml",
        {
            "GS064 16:8": "'value' takes `seen`",
            "GS064 17:32": "did you mean 'seen'?",
            "GS064 18:39": "'value' takes `seen`",
        },
    ),
    check("block_given.yaml", {"GS104 16:29": "`{expr: ...}`", "GS104 17:30": "did you mean 'later'?"}),
    check("block_names.yaml", {"GS065 14:39": "add it to `inputs`", "GS065 15:33": "did you mean 'raw'?"}),
    check("block_constant.yaml", {"GS068 14:22": "`${scale}`"}),
    check("block_variable.yaml", {"GS030 14:22": "declare it"}),
    check("block_unknown.yaml", {"GS062 16:14": "did you mean 'value'?"}),
    check("block_called.yaml", {"GS064 16:15": "`use: value`"}),
    check("block_circle.yaml", {"GS063 13:18": "take one of the uses out"}),
    check(
        "block_outputs.yaml",
        {"GS065 18:38": "`now.worth`", "GS065 18:57": "`now.worth`", "GS065 18:66": "did you mean 'worth'?"},
    ),
    check("block_output_unknown.yaml", {"GS064 10:15": "did you mean 'worth'?"}),
    check("block_models.yaml", {"GS064 17:46": "did you mean 'critic'?"}),
    check("block_args.yaml", {"GS064 16:43": "did you mean 'scale'?"}),
    check("block_keys.yaml", {"GS040 9:5": "did you mean 'inputs'?"}),
)
"""Blocks and their uses."""

INCLUDES = (
    check("include_missing.yaml", {"GS016 3:11": "'shared_models.yml'"}),
    check("include_above.yaml", {"GS066 3:11": "--root .."}),
    check("include_address.yaml", {"GS066 3:10": "by its path"}),
    check("include_empty.yaml", {"GS066 3:11": "`vars` into it"}),
    check("include_of_a_mapping.yaml", {"GS066 3:10": "`include: [shared.yaml]`"}),
    check("include_clash.yaml", {"GS066 2:3": "rename one of them"}),
    check("include_circle.yaml", {"GS066 1:10": "a third file"}),
    check("include_ops.yaml", {"GS066 1:1": "in the spec itself"}),
    check("include_section.yaml", {"GS066 1:1": "did you mean 'models'?"}),
    check("include_broken.yaml", {"GS004 1:7": "close the mapping"}),
)
"""Shared files."""

SLIPS = (
    check("unquoted_variable.yaml", {"GS004 6:60": 'put `"` around'}),
    check("unquoted_subscript.yaml", {"GS004 9:22": 'put `"` around'}),
    check(
        "unquoted_commas.yaml",
        {
            "GS041 5:14": "list",
            "GS040 5:22": "`shape: [batch, 1]`",
            "GS041 6:14": "list",
            "GS040 6:21": "`shape: [batch, 1]`",
            "GS040 9:10": "`like: net`",
            "GS040 12:33": "`inputs: [out, y]`",
        },
    ),
    check(
        "unquoted_call.yaml",
        {
            "GS040 9:28": '`expr: "minimum(q, reward)"`',
            "GS040 10:24": '`expr: "mean(q, axis=1)"`',
            "GS040 11:39": 'needs quotes: `loss: "mse(q, reward)"`',
        },
    ),
    check("inputs_without_brackets.yaml", {"GS104 11:13": "`[q, reward]`"}),
    check("misspelt_section.yaml", {"GS040 4:1": "did you mean 'models'?"}),
    check("indent_one_more.yaml", {"GS004 6:4": "the same column"}),
    check("indent_one_less.yaml", {"GS004 10:4": "the same column"}),
    check("indent_none.yaml", {"GS004 17:3": "the same column"}),
    check("indent_optimizer.yaml", {"GS040 9:3": "indent it below 'net' (line 7)"}),
    check("indent_loss.yaml", {"GS040 13:3": "indent it below 'gap' (line 12)", "GS040 14:3": "below 'gap'"}),
    check("indent_ops.yaml", {"GS040 10:3": "at the first column, like `models:`"}),
    check("indent_outputs.yaml", {"GS040 16:3": "at the first column, like `models:`"}),
    check("indent_log_every.yaml", {"GS040 25:1": "indent it below `run:` (line 23)"}),
    check("indent_layers.yaml", {"GS040 10:7": "indent it as `optimizer`"}),
    check("indent_model.yaml", {"GS040 10:5": "indent it as 'net' (line 7)"}),
    check("indent_block.yaml", {"GS040 22:5": "indent it below `ops:` (line 20)"}),
    check("indent_op.yaml", {"GS040 15:1": "indent it below `ops:` (line 10)"}),
    check("missing_colon.yaml", {"GS004 4:1": "`key: value`"}),
    check("colon_without_space.yaml", {"GS004 2:1": "`name: colon_without_space`"}),
    check("first_colon_without_space.yaml", {"GS004 1:1": "`graphspec: 1`"}),
    check("flow_without_colon.yaml", {"GS051 16:9": "`use: value`", "GS051 17:10": "`use: value`"}),
    check("quote_open.yaml", {"GS004 18:33": "the quote it began with"}),
    check("quote_open_above.yaml", {"GS004 2:7": "the quote it began with"}),
    check("quote_inside.yaml", {"GS004 2:7": "the other kind"}),
    check("bracket_too_many.yaml", {"GS004 5:33": "remove it"}),
    check("bracket_of_another_kind.yaml", {"GS004 5:32": "write `}` before it"}),
    check("comma_missing.yaml", {"GS004 5:34": "write the comma"}),
    check("semicolon.yaml", {"GS004 6:23": "remove it"}),
    check("ops_as_list.yaml", {"GS041 15:1": "`{key: value}`"}),
    check("colon_in_text.yaml", {"GS004 2:12": "needs quotes"}),
    check("variable_spelled.yaml", {"GS113 6:63": '`"${lr}"`', "GS113 7:51": '`"${lr}"`'}),
    check(
        "variable_calculated.yaml",
        {"GS032 3:25": "within `${= ...}`", "GS032 3:49": "`${= lr / 2}`", "GS032 6:64": "declare one there"},
    ),
    check(
        "optimizer_options.yaml",
        {
            "GS040 5:52": "`optimizer: {name: adam, lr: ...}`",
            "GS053 6:36": "`{name: adam, lr: 1e-3}`",
            "GS112 7:49": "did you mean 'lr'?",
        },
    ),
)
"""Slips of YAML and of variables."""
