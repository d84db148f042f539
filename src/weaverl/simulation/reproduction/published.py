"""The published figures (WEAVE, OSDI 2026), for the report to print beside ours. Never an input of a run."""

USD_PER_HOUR = {"weave-paper": 510.0, "solo": 940.0, "colocated": 710.0}
TOTAL_USD = {"weave-paper": 188_800.0}
COST_OVER_WEAVE = {"solo": 1.84, "colocated": 1.38}
PEAK_GPUS = {"weave-paper": (216, 152), "solo": (328, 328), "colocated": (0, 328)}
BUBBLE_REDUCTION = {"rollout": 0.244, "training": 0.431}
"""Against Solo-D; the source does not say whether relative or in points."""

MIX_OVER_SOLO = (1.82, 1.90, 1.99)
MIX_OVER = {"gavel": (1.43, 1.78), "colocated": (1.35, 1.47)}
SHARING_SLOWDOWN = (0.016, 0.098)
CARELESS = (1.40, 1.64)
COLD_SWITCH_LOSS = 0.45
TAIL_MIGRATION = (1.06, 1.28)
TWO_LEVEL_8 = (7.87, 8.33)
TWO_LEVEL_16 = (2.62, 2.75)
PHILLY_OVER_OPTIMUM = (1.01, 1.12)
DECISION_JOBS = 2000
DECISION_MS = 591.0
DRIFT_OVER_IDEAL = {"increasing": 1.11, "decreasing": 1.10, "mixed": 1.08}
DRIFT_SLO = {"increasing": 0.986, "decreasing": 0.987, "mixed": 0.956}
