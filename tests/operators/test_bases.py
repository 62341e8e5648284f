"""Finding a base: by folder, by alias in our cache, by hub id in the hub's cache; whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operators.errors import ConfigError
from operators.models import bases
from operators.models.bases import KNOWN, ORIGIN, cache_folder, find_base, hub_id_of, missing_part
from tests.support_adapters import write_base_files

SHA, OTHER = "a" * 40, "b" * 40
QWEN = KNOWN["qwen2.5-0.5b"]


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches of this test's own; gives the hub's."""
    hub = tmp_path / "hub"
    monkeypatch.setenv("LATTICEMIND_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    return hub


def snapshot(hub: Path, revision: str, *, hub_id: str = QWEN.id, fill: bytes = b"\x01") -> Path:
    """A base in the hub's cache as the hub's own client lays it down; the last one written is `main`."""
    repository = hub / f"models--{hub_id.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(revision)
    (repository / "blobs").mkdir(exist_ok=True)
    return write_base_files(repository / "snapshots" / revision, fill=fill)


def split_weights(folder: Path) -> None:
    """The weights in two files with an index, as large bases come."""
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for name in names:
        (folder / name).write_bytes(b"\x01")
    index = {"weight_map": {"a": names[0], "b": names[0], "c": names[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_a_folder_is_a_base_known_by_its_content(tmp_path: Path) -> None:
    found = find_base(str(write_base_files(tmp_path / "one" / "base")))
    again = find_base(str(write_base_files(tmp_path / "two" / "base")))
    other = find_base(str(write_base_files(tmp_path / "three" / "base", fill=b"\x02")))
    assert found.path == tmp_path / "one" / "base"
    assert found.card.id == "base"
    assert found.card == again.card
    assert found.card.revision != other.card.revision


@pytest.mark.parametrize("place", [0, 70_000, 199_999])
def test_weights_that_differ_in_a_stretch_are_another_base(tmp_path: Path, place: int) -> None:
    first, second = write_base_files(tmp_path / "1" / "base"), write_base_files(tmp_path / "2" / "base")
    weights = bytearray((second / "model.safetensors").read_bytes())
    for byte in range(place, min(place + 4096, len(weights))):
        weights[byte] = 7
    (second / "model.safetensors").write_bytes(weights)
    assert find_base(str(first)).card.revision != find_base(str(second)).card.revision


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_that_lacks_a_part_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = write_base_files(tmp_path / "base")
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=f"holds no {name}"):
        find_base(str(folder))


def test_split_weights_are_whole_only_with_every_file_of_the_index(tmp_path: Path) -> None:
    folder = write_base_files(tmp_path / "base")
    split_weights(folder)
    assert missing_part(folder) is None
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert missing_part(folder) == "model-00002-of-00002.safetensors"
    (folder / "model.safetensors.index.json").unlink()
    assert missing_part(folder) == "model.safetensors.index.json"


def test_an_adapter_folder_is_no_base(tmp_path: Path) -> None:
    folder = write_base_files(tmp_path / "base")
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match=r"holds no model\.safetensors"):
        find_base(str(folder))


def test_an_alias_is_found_in_our_cache_with_the_origin_that_fetch_noted(tmp_path: Path) -> None:
    assert cache_folder("smollm2-135m") == tmp_path / "own" / "models" / "smollm2-135m"
    folder = write_base_files(cache_folder("smollm2-135m"))
    (folder / ORIGIN).write_text(json.dumps({"id": "org/name", "revision": "r1"}))
    for name in ("smollm2-135m", KNOWN["smollm2-135m"].id, str(folder)):
        card = find_base(name).card
        assert (card.id, card.revision) == ("org/name", "r1")
    with pytest.raises(ConfigError, match="of revision r2 is not on this machine"):
        find_base("smollm2-135m", "r2")
    with pytest.raises(ConfigError, match="is of revision r1, asked for is r2"):
        find_base(str(folder), "r2")


@pytest.mark.parametrize(
    ("text", "said"), [("{", "cannot be read"), ("[]", "no JSON object"), ('{"id": 1}', "no id")]
)
def test_a_damaged_origin_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    folder = write_base_files(tmp_path / "base")
    (folder / ORIGIN).write_text(text)
    with pytest.raises(ConfigError, match=said):
        find_base(str(folder))


def test_a_damaged_base_in_our_cache_is_to_be_fetched_again() -> None:
    folder = write_base_files(cache_folder("smollm2-135m"))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"holds no model\.safetensors") as fault:
        find_base("smollm2-135m")
    assert "remove that folder, then: latticemind models fetch smollm2-135m" in fault.value.hint


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LATTICEMIND_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("x") == tmp_path / "xdg" / "latticemind" / "models" / "x"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder("x") == tmp_path / "home" / ".cache" / "latticemind" / "models" / "x"


def test_the_hubs_cache_gives_the_snapshot_of_a_revision(caches: Path) -> None:
    snapshot(caches, SHA)
    snapshot(caches, OTHER)
    for name in (QWEN.alias, QWEN.id):
        for revision in (SHA, OTHER):
            found = find_base(name, revision)
            assert (found.card.id, found.card.revision) == (QWEN.id, revision)
            assert found.path.name == revision
        assert find_base(name, "main").card.revision == OTHER
    with pytest.raises(ConfigError, match="of revision cccc is not on this machine") as fault:
        find_base(QWEN.alias, "cccc")
    assert fault.value.hint == f"latticemind models fetch {QWEN.alias} --revision cccc"


def test_a_snapshot_given_as_a_folder_is_the_same_base(caches: Path) -> None:
    folder = snapshot(caches, SHA)
    assert find_base(str(folder)).card == find_base(QWEN.id).card
    with pytest.raises(ConfigError, match=f"asked for is {OTHER}"):
        find_base(str(folder), OTHER)


def test_a_folder_directly_below_the_root_has_an_origin() -> None:
    hub_id, revision = bases._origin(Path("/no-such-base"))
    assert hub_id == "no-such-base"
    assert revision.startswith("local-")


def test_a_download_that_was_stopped_is_no_base(caches: Path) -> None:
    folder = snapshot(caches, SHA)
    split_weights(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"only part of .*: model-00002-of-00002\.safetensors") as fault:
        find_base(QWEN.alias)
    assert fault.value.hint == f"latticemind models fetch {QWEN.id}"
    snapshot(caches, OTHER)
    assert find_base(QWEN.alias).card.revision == OTHER


def test_a_folder_of_unknown_origin_is_taken_for_any_revision(tmp_path: Path) -> None:
    folder = write_base_files(tmp_path / "base")
    assert find_base(str(folder), SHA).card.revision.startswith("local-")


@pytest.mark.parametrize("name", ["qwen2.5-14b", "Qwen/Qwen2.5-14B-Instruct", "someone/some-model"])
def test_a_base_that_is_nowhere_says_how_to_fetch_it(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the base {name} is not on this machine") as fault:
        find_base(name)
    assert fault.value.hint == f"latticemind models fetch {name}"


@pytest.mark.parametrize("name", ["qwen", "", "./no/such/folder", "/no/such", "a/b/c", "../x"])
def test_what_is_no_name_at_all_is_told_the_aliases(name: str) -> None:
    assert hub_id_of(name) is None
    with pytest.raises(ConfigError, match="no base") as fault:
        find_base(name)
    assert "smollm2-135m" in fault.value.hint
