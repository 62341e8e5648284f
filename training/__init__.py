"""Floor 2: recipes, base models and fold runs. Empty until adapters are trained here."""
