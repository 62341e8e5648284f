"""Floor 1: the memory as a log and its fold, the update loop, the checker, the reconciler, the renderer.

Front doors: `loop.UpdateLoop`, `memory.Memory`, `render.render`. The room knows no trajectory and no gold.
"""
