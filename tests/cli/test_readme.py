"""The README's example runs and prints what the README says; its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_prints_what_stands_below_it() -> None:
    found = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)
    assert found
    done = subprocess.run(
        [sys.executable, "-c", found[1]],
        cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.strip() == found[2].strip()


def test_local_links_lead_somewhere() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for document in documents:
        for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), (document.name, target)


def test_every_shipped_yaml_opens_with_the_command_that_runs_it() -> None:
    files = sorted((ROOT / "configs").rglob("*.yaml"))
    assert files
    for path in files:
        assert path.read_text(encoding="utf-8").startswith(("# latticemind ", "# accelerate launch ")), path
