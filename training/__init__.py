"""Floor 2: recipes, preflight, base models and runs of adapters.

Front doors: `training.folds.Run` (every adapter of a run, on one load of the base), `training.dry_run` (what
it will cost) and `training.preflight` (what would go wrong). A recipe is a `TrainConfig` from configs/train;
rows come from a folder that `data build` wrote and pass through its splits. Knows nothing of how adapters are
served or scored.
"""
