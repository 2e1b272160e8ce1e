"""Errors of models: what is wrong with one before it is ever called."""

from __future__ import annotations


class ModelError(ValueError):
    """Tell what is wrong with a model: its file cannot be read (GS271) or does not fit (GS272), its types (GS208)."""

    def __init__(self, code: str, op: str, message: str, notes: tuple[str, ...] = (), remedy: str = "") -> None:
        self.code, self.op, self.message = code, op, f"model '{op}': {message}"
        self.notes, self.remedy = notes, remedy
        super().__init__("\n".join((self.message, *notes)))
