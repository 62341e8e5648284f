"""Floor 2: one base and its adapters behind typed operator endpoints, by vLLM or in this process.

Front doors: `registry.read_registry` (which adapters, from files), `run` (engines, brought up and checked),
`service.Service` with `app.build_app` (who answers, and over HTTP), `parity.measure_parity`. The room asks
adapters that exist; of training data and trajectories it knows nothing, of scores what `eval` left on disk.
"""
