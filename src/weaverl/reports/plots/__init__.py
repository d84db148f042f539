"""Figures of simulated runs as SVG and PNG. `canvas` alone loads matplotlib."""
