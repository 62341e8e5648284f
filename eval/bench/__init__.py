"""Benchmarks of speed and size, one file a subject; each prints a ratio within one run."""
