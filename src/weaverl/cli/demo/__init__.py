"""The demo: the same jobs solo, woven and plain, on a cluster of their own, and what comes out of it."""

from weaverl.cli.demo.outcome import DemoOutcome
from weaverl.cli.demo.plan import DemoPlan
from weaverl.cli.demo.run import run_demo

__all__ = ["DemoOutcome", "DemoPlan", "run_demo"]
