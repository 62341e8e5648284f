"""The model in this process, shared by all threads of the service."""

from __future__ import annotations

from operators.models.text import TextModel
from serving.batching import BatchingModel
from serving.wire import Health


class LocalEngine:
    """A model that is loaded already; ready as long as its thread lives."""

    def __init__(self, model: TextModel, *, batch_size: int, timeout_s: float) -> None:
        self.model = BatchingModel(model, batch_size=batch_size, timeout_s=timeout_s)

    def health(self) -> Health:
        if self.model.alive:
            return Health(status="ready")
        return Health(status="unavailable", detail="the model has stopped: see the log, and start again")

    def waiting(self) -> int:
        return self.model.waiting()

    def close(self) -> None:
        self.model.close()
