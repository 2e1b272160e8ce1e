"""The kinds of ops: one line each in :data:`KINDS`, and their union :data:`Op`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from graphspec.ops.assign import AssignOp
from graphspec.ops.base import MODES, ModeName, OpBase, Reference, Role
from graphspec.ops.call import CallOp
from graphspec.ops.copy import CopyOp
from graphspec.ops.ema import EmaOp
from graphspec.ops.forward import ForwardOp, Output
from graphspec.ops.gradient import GradientOp
from graphspec.ops.loss import LossOp
from graphspec.ops.metric import MetricOp
from graphspec.ops.random import RandomOp
from graphspec.ops.schedule import ScheduleOp
from graphspec.ops.transform import TransformOp
from graphspec.ops.update import ClipSpec, UpdateOp

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
}
"""Every kind by the key that makes an op one of it."""

__all__ = [
    "KINDS",
    "MODES",
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
