"""Floor 1: trajectories, synthetic scenarios and git history become gold cases, examples and splits.

Front doors: `trajectory.load_trajectories`, `scenarios.generate`, `gold.gold_cases`, `build.build_data`. The
room never asks an operator: gold is what history did.
"""
