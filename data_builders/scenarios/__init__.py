"""Synthetic scenarios: made-up histories of the three families, as trajectories with gold and queries.

Front door: `generate(family, seed=..., vocabulary=load_vocabulary())`. The room knows no operator, no
pipeline and no model: its gold is the books of its own world.
"""

from data_builders.scenarios.families import Family, generate
from data_builders.scenarios.vocabulary import Vocabulary, load_vocabulary

__all__ = ["Family", "Vocabulary", "generate", "load_vocabulary"]
