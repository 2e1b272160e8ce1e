"""Audits of training loops that somebody wrote by hand: a trace of some steps, and what is wrong with it."""

from __future__ import annotations

from runtime.audit.report import Report
from runtime.audit.session import audit, audit_script

__all__ = ["Report", "audit", "audit_script"]
