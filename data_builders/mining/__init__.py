"""Mined gold: what a repository's diffs say changed, paired with what its commit messages say.

Front doors: `history.RepositoryMiner` (commits with their transitions), `align.align` (what a message
states), `dataset.mine_repositories` (what `data mine` writes). Labels come from diffs; no operator is asked.
"""
