"""The rule operators: deterministic, no model, general English. `operators.assembly` builds them."""
