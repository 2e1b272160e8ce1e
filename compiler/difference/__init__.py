"""What is different between two plans: in what runs, in what order, on which versions, and why."""

from __future__ import annotations

from compiler.difference.compare import compare_plans
from compiler.difference.export import export_difference
from compiler.difference.records import Difference, FunctionChange
from compiler.difference.text import tell_difference

__all__ = ["Difference", "FunctionChange", "compare_plans", "export_difference", "tell_difference"]
