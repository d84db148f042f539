"""The auditor: it checks a run and works out its figures from its timeline, and a simulated one from its trace too.

It shares no code with the scheduler, the simulator or the other reports, so that a mistake there cannot hide here.
``audit(path)`` reads a timeline file as plain JSON; ``audit_simulated`` takes the table of a simulated run and the
rows of its trace. Both return findings, one a fault; a run without findings is audited.
"""

from weaverl.reports.audit.live import AuditFigures, AuditResult, audit, disagreements
from weaverl.reports.audit.simulated import SimulatedAudit, audit_simulated, read_simulated
from weaverl.reports.audit.table import AuditFinding, Table, table_of_rows

__all__ = [
    "AuditFigures",
    "AuditFinding",
    "AuditResult",
    "SimulatedAudit",
    "Table",
    "audit",
    "audit_simulated",
    "disagreements",
    "read_simulated",
    "table_of_rows",
]
