"""Programs written by hand, so that the backend is tested against nothing but itself and plain PyTorch."""

from __future__ import annotations

from compiler.ir.cell import parameters_of
from compiler.ir.instructions import (
    Apply,
    ApplyPart,
    Blend,
    Emit,
    Evaluate,
    Forward,
    Gradient,
    Instruction,
    Random,
    Release,
)
from compiler.ir.program import (
    Function,
    Initializer,
    InputDecl,
    LayerDecl,
    ModelDecl,
    ModeProgram,
    OptimizerDecl,
    Program,
    TensorDecl,
)
from compiler.ir.value import Argument, Constant, FunctionRef, Read, Ref

SGD = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0, "fused": "auto"}


def cell(text: str) -> Read:
    """Return the cell version that ``generator@1`` stands for."""
    model, _, version = text.partition("@")
    return Read(cell=parameters_of(model), version=int(version))


def arguments(*operands: str | float) -> tuple[Argument, ...]:
    """Return arguments: names, ``-name`` for a detached one, numbers."""
    return tuple(
        Argument(operand=Constant(value=each))
        if isinstance(each, float)
        else Argument(operand=Ref(name=each.removeprefix("-"), detach=each.startswith("-")))
        for each in operands
    )


def forward(model: str, output: str, *operands: str, reads: int = 0, **flags: object) -> Forward:
    """Return a call of a model, with a graph unless the flags say otherwise."""
    flags = {"graph": True, "train": True} | flags
    version = (cell(f"{model}@{reads}"),)
    return Forward(op=output, model=model, arguments=arguments(*operands), outputs=(output,), reads=version, **flags)


def evaluate(
    family: str, function: str, output: str, *operands: str | float, graph: bool = True, **more: object
) -> Evaluate:
    """Return a call of a built-in function."""
    callee = FunctionRef(name=function, builtin=True)
    return Evaluate(
        op=output,
        family=family,
        function=callee,
        arguments=arguments(*operands),
        outputs=(output,),
        graph=graph,
        **more,
    )


def gradient(op: str, loss: str, *models: str, **more: object) -> Gradient:
    """Return the gradient of an update."""
    return Gradient(op=op, loss=loss, models=models, output=op, **more)


def apply(op: str, model: str, *notes: str) -> Apply:
    """Return the write of an update by the model's own optimizer."""
    part = ApplyPart(optimizer=model, models=(model,), gradients=op, covers=(model,))
    return Apply(op=op, parts=(part,), writes=(cell(f"{model}@1"),), notes=notes)


def linear(index: int, inputs: int, outputs: int) -> tuple[LayerDecl, tuple[TensorDecl, ...]]:
    """Return a linear layer and its parameters."""
    options = {"in_features": inputs, "out_features": outputs, "bias": True}
    start = Initializer(kind="uniform", bound=inputs**-0.5)
    tensors = (
        TensorDecl(name=f"{index}.weight", shape=(outputs, inputs), initializer=start),
        TensorDecl(name=f"{index}.bias", shape=(outputs,), initializer=start),
    )
    return LayerDecl(kind="linear", path=str(index), options=options), tensors


def mlp(name: str, sizes: tuple[int, int, int], **more: object) -> ModelDecl:
    """Return a model of two linear layers with tanh between them."""
    first, some = linear(0, sizes[0], sizes[1])
    last, others = linear(2, sizes[1], sizes[2])
    layers = (first, LayerDecl(kind="tanh", path="1"), last)
    return ModelDecl(name=name, kind="layers", layers=layers, parameters=(*some, *others), **more)


def sgd(model: str) -> OptimizerDecl:
    """Return SGD with momentum for a model."""
    return OptimizerDecl(name=model, rule="sgd", builtin=True, models=(model,), options=SGD)


def program(name: str, models: tuple[ModelDecl, ...], *instructions: Instruction, **more: object) -> Program:
    """Return a program of one train function; every model that some update writes has an optimizer."""
    active = tuple(dict.fromkeys(each.op for each in instructions if isinstance(each, Apply | Blend)))
    function = Function(mode="train", name="train_step", active=active, gated=(), instructions=instructions)
    stepped = [part.optimizer for each in instructions if isinstance(each, Apply) for part in each.parts]
    inputs = (InputDecl(name="image", shape=("batch", 6), dtype="float32"),)
    fields = {
        "inputs": inputs,
        "optimizers": tuple(sgd(model) for model in dict.fromkeys(stepped)),
        "modes": (ModeProgram(mode="train", gates=(), functions=(function,)),),
    }
    return Program(
        **{"name": name, "backend": "torch", "order": "fewest", "seed": 0, "rng": "native", "models": models}
        | fields
        | more
    )


GENERATOR = mlp("generator", (3, 8, 6))
DISCRIMINATOR = mlp("discriminator", (6, 8, 1))
SAMPLER = mlp("sampler", (3, 8, 6), like="generator", initial="copy")
LATENT = InputDecl(name="z", shape=("batch", 3), dtype="float32")
IMAGE = InputDecl(name="image", shape=("batch", 6), dtype="float32")


def dcgan() -> Program:
    """Return DCGAN's order: the generator is judged by the discriminator after its step; an average follows."""
    return program(
        "dcgan",
        (GENERATOR, DISCRIMINATOR, SAMPLER),
        forward("generator", "fake", "z"),
        forward("discriminator", "on_real", "image"),
        forward("discriminator", "on_fake", "-fake"),
        evaluate("loss", "bce_with_logits", "d_real", "on_real", 1.0),
        evaluate("loss", "bce_with_logits", "d_fake", "on_fake", 0.0),
        evaluate("call", "add", "d_loss", "d_real", "d_fake"),
        gradient("step_d", "d_loss", "discriminator"),
        apply("step_d", "discriminator"),
        Release(op="step_d", values=("on_real", "on_fake", "step_d")),
        forward("discriminator", "judged", "fake", reads=1, frozen=True),
        evaluate("loss", "bce_with_logits", "g_loss", "judged", 1.0),
        gradient("step_g", "g_loss", "generator"),
        apply("step_g", "generator"),
        Blend(
            op="average",
            source="generator",
            target="sampler",
            decay=0.9,
            buffers="ignore",
            reads=(cell("generator@1"),),
            writes=(cell("sampler@1"),),
        ),
        Emit(op="outputs", values=("d_loss", "g_loss")),
        inputs=(IMAGE, LATENT),
    )


def shared_fake() -> Program:
    """Return a GAN that uses one judgement in both losses, the discriminator's update deferred."""
    return program(
        "shared-fake",
        (GENERATOR, DISCRIMINATOR),
        forward("generator", "fake", "z"),
        forward("discriminator", "on_fake", "fake"),
        evaluate("loss", "bce_with_logits", "d_loss", "on_fake", 0.0),
        evaluate("loss", "bce_with_logits", "g_loss", "on_fake", 1.0, weight=0.5),
        gradient("step_d", "d_loss", "discriminator", retain_graph=True),
        gradient("step_g", "g_loss", "generator"),
        apply("step_d", "discriminator", "apply step_d is deferred after gradient step_g: it reads discriminator@0"),
        apply("step_g", "generator"),
        Emit(op="outputs", values=("d_loss", "g_loss")),
        inputs=(LATENT,),
    )


def byol() -> Program:
    """Return a student that follows a teacher without a graph, which is an average of the student."""
    return program(
        "byol",
        (mlp("student", (6, 8, 4)), mlp("teacher", (6, 8, 4), like="student", initial="copy")),
        forward("teacher", "target", "image", graph=False, train=False),
        evaluate("call", "normalize", "goal", "target", graph=False),
        forward("student", "answer", "image"),
        evaluate("loss", "mse", "loss", "answer", "goal"),
        gradient("step", "loss", "student"),
        apply("step", "student"),
        Blend(op="average", source="student", target="teacher", decay=0.99, buffers="ignore"),
        Emit(op="outputs", values=("loss", "goal")),
    )


def noisy() -> Program:
    """Return a program that draws: noise for the size of the batch, and noise like an input."""
    return program(
        "noisy",
        (mlp("student", (6, 8, 6)),),
        Random(op="z", distribution="normal", output="z", shape=("batch", 6)),
        Random(op="more", distribution="uniform", output="more", like="image", options={"low": -1.0}),
        evaluate("call", "add", "sum", "z", "more", "image", graph=False),
        forward("student", "answer", "sum"),
        evaluate("loss", "mse", "loss", "answer", "image"),
        gradient("step", "loss", "student"),
        apply("step", "student"),
        Emit(op="outputs", values=("loss", "z")),
    )
