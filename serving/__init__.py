"""Floor 2: model servers and operator endpoints. Empty until adapters are served here."""
