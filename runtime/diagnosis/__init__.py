"""What `stepgraph doctor` looks at: packages, frameworks, devices, the folder, the environment, and a spec."""

from __future__ import annotations

from runtime.diagnosis.examination import Examination, examine

__all__ = ["Examination", "examine"]
