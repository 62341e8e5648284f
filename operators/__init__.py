"""Floor 0: contracts, slot schema, evidence, prompts, and the operators themselves.

Front doors: `operators.claims` (the words), `operators.seam` (the three calls), `operators.assembly` (builds
them). The room imports nothing else of ours and no torch.
"""
