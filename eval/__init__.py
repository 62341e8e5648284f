"""Floor 3: leave-one-out, metrics, statistics, reports, the demo.

Front doors: `loo.run_loo`, `report.summarise`, `replay.replay`, `repository.replay_repository`.
"""
