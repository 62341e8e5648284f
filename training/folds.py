"""All adapters of a run: shared stages first, then one adapter for each operator and holdout."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from peft import PeftModel

from operators.adapters import WEIGHTS, AdapterCard, read_card, weights_hash, write_card
from operators.artefacts import environment, new_folder, write_json
from operators.canaries import Canary, record_canaries
from operators.claims import content_hash
from operators.errors import ConfigError, TrainingError
from operators.models.bases import FoundBase
from operators.models.local.model import LocalModel
from operators.prompts import prompt_version
from training.config import TrainConfig
from training.rows import DataFolder, Selection, select, tokenise
from training.trainer import (
    Loaded,
    Trained,
    attach,
    detach,
    is_first,
    load_base,
    refuse_missing_board,
    save,
    train_adapter,
    wait,
)

SHARED = "shared"
MULTI = "multi"
LOG = "train_log.jsonl"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Job:
    """One adapter to train: on the rows of `stage`, or of both stages (`single`)."""

    operator: str
    holdout: str
    stage: str

    @property
    def name(self) -> str:
        return f"{self.operator}/{SHARED if self.stage == SHARED else self.holdout}"


@dataclass(frozen=True, slots=True)
class Finished:
    """An adapter of the run; `trained` is None when it was there already."""

    job: Job
    folder: Path
    card: AdapterCard
    trained: Trained | None


def plan_jobs(
    config: TrainConfig, data: DataFolder, *, operators: Sequence[str], holdouts: Sequence[str]
) -> list[Job]:
    """The adapters of a run, each after the one it continues from.

    `operators` and `holdouts` may be ("all",), and with multi_task `operators` has to be.
    Raises: ConfigError for one that there is not.
    """
    known = list(config.tasks)
    if config.multi_task and tuple(operators) not in {("all",), (MULTI,)}:
        raise ConfigError("multi_task trains one adapter for all operators", hint="give --operator all")
    chosen = known if config.multi_task or tuple(operators) == ("all",) else list(operators)
    names = [MULTI] if config.multi_task else chosen
    left_out = list(data.splits) if tuple(holdouts) == ("all",) else list(holdouts)
    for kind, asked, there in (("operator", chosen, known), ("holdout", left_out, list(data.splits))):
        foreign = [name for name in asked if name not in there]
        if foreign:
            raise ConfigError(f"no {kind} {foreign[0]!r}", hint=f"there are: {', '.join(there)}")
    jobs = []
    for name in names:
        if config.mode == "shared-first":
            jobs += [Job(name, "none", SHARED)]
        stage = "fold" if config.mode == "shared-first" else "single"
        jobs += [Job(name, holdout, stage) for holdout in left_out]
    return jobs


def selection_of(job: Job, config: TrainConfig, data: DataFolder) -> Selection:
    """The cases a job trains on. A single job takes both stages' cases, all of them through its own split."""
    operators = list(config.tasks) if job.operator == MULTI else [job.operator]
    return select(
        data, config, operators, stage=job.stage, holdout=None if job.stage == SHARED else job.holdout
    )


class Run:
    """A folder of adapters in the making; what is finished stays and is not trained again."""

    def __init__(self, folder: Path, config: TrainConfig, data: DataFolder, base: FoundBase) -> None:
        self.folder, self.config, self.data, self.base = folder, config, data, base
        self._loaded: Loaded | None = None

    def place(self, job: Job) -> Path:
        return self.folder / "adapters" / job.operator / (SHARED if job.stage == SHARED else job.holdout)

    def train(self, jobs: Sequence[Job], *, progress: Progress = lambda _: None) -> list[Finished]:
        """Every job in order, on one load of the base; a job that is finished is skipped.

        Of several processes (`accelerate launch`) all train and the first writes and speaks.
        Raises: TrainingError, ConfigError, InputError; adapters finished before stay.
        """
        if not is_first():
            progress = _silent
        return [self._train(job, progress) for job in jobs]

    def _train(self, job: Job, progress: Progress) -> Finished:
        selection = selection_of(job, self.config, self.data)
        parent = self._parent(job)
        recipe = self._recipe_hash(job, selection, parent)
        target = self.place(job)
        if target.exists():
            card = _whole(target)
            if card.recipe_hash == recipe:
                progress(f"{job.name}: there already")
                return Finished(job, target, card, None)
            raise TrainingError(
                f"{target} holds an adapter of another recipe or other data",
                hint="train into another folder, or move that adapter away",
            )
        refuse_missing_board(self.config)
        progress(f"{job.name}: {len(selection.cases):,} cases, {selection.rows:,} rows")
        return self._fresh(job, selection, parent, recipe, progress)

    def _fresh(
        self, job: Job, selection: Selection, parent: Finished | None, recipe: str, progress: Progress
    ) -> Finished:
        if self._loaded is None:
            self._loaded = load_base(self.base.path, self.config)
        loaded, config, target = self._loaded, self.config, self.place(job)
        cases = [
            tokenise(loaded.tokenizer, case.examples, max_length=config.max_length)
            for case in selection.cases
        ]
        first = next(iter(config.tasks)) if job.operator == MULTI else job.operator
        if is_first():
            self._record()
        work = self.folder / ".work" / job.operator / f"{target.name}-{recipe[:12]}"
        work.mkdir(parents=True, exist_ok=True)
        model = attach(loaded, config, parent.folder if parent else None)
        try:
            trained = train_adapter(
                loaded, model, cases, config,
                config.optim.shared if job.stage == SHARED else config.optim.fold,
                batch_size=config.optim.batch_size[first],  # type: ignore[index]
                accumulation=config.optim.accumulation[first],  # type: ignore[index]
                work=work, log=work / LOG, board=self.folder / "tensorboard" / job.operator / target.name,
                progress=lambda step: progress(f"{job.name}: {step}"),
            )  # fmt: skip
            if is_first():
                with new_folder(target) as draft:
                    save(model, draft, base_id=self.base.card.id)
                    shutil.copy(work / LOG, draft)
                    card = self._card(job, selection, parent, recipe, trained, draft)
                    write_card(draft, card.model_copy(update={"canaries": self._canaries(model, card)}))
                shutil.rmtree(work, ignore_errors=True)
        finally:
            detach(model)
        wait()
        speed = trained.row_tokens / trained.seconds if trained.seconds else 0.0
        progress(
            f"{job.name}: {trained.steps} steps, loss {trained.first_loss:.3f} -> {trained.last_loss:.3f}, "
            f"{trained.seconds:.0f} s, {speed:,.0f} row tokens/s"
        )
        return Finished(job, target, read_card(target), trained)

    def _canaries(self, model: PeftModel, card: AdapterCard) -> tuple[Canary, ...]:
        """What the adapter, as trained, answers otherwise than its base."""
        assert self._loaded is not None
        asked = LocalModel(
            model, self._loaded.tokenizer, identity=self.base.card.id, adapters=[str(model.active_adapter)]
        )
        return record_canaries(asked, str(model.active_adapter), card.tasks)

    def _record(self) -> None:
        """Say what this run trains with; a run that trains nothing new leaves what stands there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = {"config": self.config, "base": self.base.card}
        record = {name: fact.model_dump(mode="json") for name, fact in facts.items()}
        draft = self.folder / f".train-{os.getpid()}.json"
        write_json(draft, record | {"environment": environment()})
        draft.replace(self.folder / "train.json")

    def _parent(self, job: Job) -> Finished | None:
        if job.stage != "fold":
            return None
        shared = replace(job, holdout="none", stage=SHARED)
        folder = self.place(shared)
        if not folder.exists():
            raise TrainingError(f"{job.name} goes on from {folder}, which is not there yet")
        return Finished(shared, folder, _whole(folder), None)

    def _recipe_hash(self, job: Job, selection: Selection, parent: Finished | None) -> str:
        """Everything that decides the weights: what only paces or watches the run is left out.

        Mixture and tasks decide by the rows they give, which `data_hash` covers; of the sizes of a step only
        the job's own count.
        """
        watched = {"save_every_steps", "log_every_steps", "report_to", "threads", "mixture", "tasks"}
        recipe = self.config.model_dump(mode="json", exclude=watched)
        first = next(iter(self.config.tasks)) if job.operator == MULTI else job.operator
        for size in ("batch_size", "accumulation"):
            recipe["optim"][size] = recipe["optim"][size][first]
        before = parent.card.weights_hash if parent else None
        base = self.base.card.model_dump()
        return content_hash(
            recipe, job.operator, job.stage, selection.data_hash, before, base, prompt_version(job.operator)
        )

    def _card(
        self,
        job: Job,
        selection: Selection,
        parent: Finished | None,
        recipe: str,
        trained: Trained,
        draft: Path,
    ) -> AdapterCard:
        operators = list(self.config.tasks) if job.operator == MULTI else [job.operator]
        rows = {"cases": len(selection.cases), "rows": selection.rows, "seed": self.config.optim.seed}
        figures = {name: getattr(trained, name) for name in Trained.__slots__}
        return AdapterCard(
            operator=job.operator,
            tasks=tuple(task for name in operators for task in self.config.tasks[name]),  # type: ignore[index]
            holdout=job.holdout,
            stage=job.stage,
            parent=parent.card.name if parent else None,
            base=self.base.card,
            prompt_version=prompt_version(job.operator),
            data_hash=selection.data_hash,
            recipe_hash=recipe,
            weights_hash=weights_hash(draft),
            dtype=trained.dtype,
            config=self.config.model_dump(mode="json"),
            training=rows | figures,
            environment=environment(),
        )


def _whole(folder: Path) -> AdapterCard:
    """The card of a finished adapter. Raises: TrainingError for weights that are not as they were written."""
    card = read_card(folder)
    if not (folder / WEIGHTS).is_file() or weights_hash(folder) != card.weights_hash:
        raise TrainingError(
            f"the weights in {folder} are not as they were written",
            hint="remove that folder, then train again",
        )
    return card


def _silent(step: str) -> None:
    """What the processes after the first say."""
