"""The kinds of ops: one line each in :data:`KINDS`, and their union :data:`Op`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from graphspec.declare.ops.adapt import AdaptGroup, AdaptOp
from graphspec.declare.ops.assign import AssignOp
from graphspec.declare.ops.base import MODES, ModeName, OpBase, Reference, Role
from graphspec.declare.ops.call import CallOp
from graphspec.declare.ops.copy import CopyOp
from graphspec.declare.ops.ema import EmaOp
from graphspec.declare.ops.forward import ForwardOp, Output
from graphspec.declare.ops.gradient import GradientOp
from graphspec.declare.ops.loss import LossOp
from graphspec.declare.ops.metric import MetricOp
from graphspec.declare.ops.random import RandomOp
from graphspec.declare.ops.schedule import ScheduleOp
from graphspec.declare.ops.transform import TransformOp
from graphspec.declare.ops.update import ClipSpec, UpdateOp

Op: TypeAlias = (
    ForwardOp
    | CallOp
    | RandomOp
    | ScheduleOp
    | LossOp
    | GradientOp
    | TransformOp
    | UpdateOp
    | EmaOp
    | CopyOp
    | MetricOp
    | AssignOp
    | AdaptOp
)

KINDS: Mapping[str, type[OpBase]] = {
    "forward": ForwardOp,
    "call": CallOp,
    "random": RandomOp,
    "schedule": ScheduleOp,
    "gradient": GradientOp,
    "transform": TransformOp,
    "update": UpdateOp,
    "ema": EmaOp,
    "metric": MetricOp,
    "loss": LossOp,
    "copy": CopyOp,
    "assign": AssignOp,
    "adapt": AdaptOp,
}
"""Every kind by the key that makes an op one of it."""

__all__ = [
    "KINDS",
    "MODES",
    "AdaptGroup",
    "AdaptOp",
    "AssignOp",
    "CallOp",
    "ClipSpec",
    "CopyOp",
    "EmaOp",
    "ForwardOp",
    "GradientOp",
    "LossOp",
    "MetricOp",
    "ModeName",
    "Op",
    "OpBase",
    "Output",
    "RandomOp",
    "Reference",
    "Role",
    "ScheduleOp",
    "TransformOp",
    "UpdateOp",
]
