"""Floor 2: one base and its adapters behind typed operator endpoints, by vLLM or in this process.

Front doors: `registry.read_registry` (which adapters, from files), `run` (engines, brought up and checked),
`service.Service` with `app.build_app` (who answers, and over HTTP), `parity.measure_parity`. The room asks
adapters that exist: it knows nothing of training data, trajectories or scores beyond what `eval` left on disk.
"""
