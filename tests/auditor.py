"""The auditor, which ships with the package: it shares no code with what it checks."""

from weaverl.reports.audit import AuditFigures, AuditFinding, AuditResult, audit, disagreements

__all__ = ["AuditFigures", "AuditFinding", "AuditResult", "audit", "disagreements"]
