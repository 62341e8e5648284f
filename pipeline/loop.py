"""Algorithm 1: a note goes in, claims are extracted, the memory decides, findings are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from operators.assembly import ModelSource, OperatorChoice, build_operators
from operators.claims import Decision, Finding, Note, StateClaim
from operators.errors import OperatorFailure, SchemaError
from operators.outcome import Outcome, OutcomeKind
from operators.schema import SlotSchema
from operators.seam import ExtractOperator
from pipeline.decide import Decider, FailurePolicy
from pipeline.log import Failure, MemoryLog
from pipeline.memory import Clock, Memory, system_clock
from pipeline.reconciler import FindingBoard, Reconciler, RuleReconciler, settle
from pipeline.render import is_rendered


@dataclass(frozen=True, slots=True)
class NoteReport:
    """What one note came to. `decisions` pairs each new claim with its decision (None: stays Proposed).

    `reason` says why nothing was extracted, and is empty when something was.
    """

    outcome: OutcomeKind
    extracted: tuple[StateClaim, ...]
    decisions: tuple[tuple[StateClaim, Decision | None], ...]
    reason: str


def open_loop(
    schema: SlotSchema,
    choice: OperatorChoice,
    *,
    policy: FailurePolicy = FailurePolicy.RAISE,
    log: MemoryLog | None = None,
    clock: Clock = system_clock,
    source: ModelSource | None = None,
) -> UpdateLoop:
    """A loop with the chosen operators on the given log (None: a new one in memory).

    `source` is the model that learned operators ask. `policy` says what happens when an operator gives no
    answer; rules are what `rules` falls back to.
    """
    chosen, rules = build_operators(choice, schema, source), build_operators(OperatorChoice(), schema)
    decider = Decider(schema, chosen.update, rules.update, policy)
    return UpdateLoop(Memory(schema, decider, log=log, clock=clock), chosen.extract, rules.extract, policy)


@dataclass(slots=True)
class UpdateLoop:
    """One memory with the operators that feed it.

    `rules` answers for an extractor that gave no usable answer when the policy is `rules`.
    """

    memory: Memory
    extractor: ExtractOperator
    rules: ExtractOperator
    on_failure: FailurePolicy = FailurePolicy.RAISE
    reconciler: Reconciler = field(default_factory=RuleReconciler)
    extract_outcomes: Counter[OutcomeKind] = field(default_factory=Counter)

    def ingest(self, note: Note) -> NoteReport:
        """Take one note in, all or nothing. A note that was read before changes nothing.

        Lines that a renderer of ours wrote are not read again: a memory is no evidence for itself.
        Raises: OperatorFailure when an operator gives no answer and the policy is `raise`.
        """
        text = "\n".join(line for line in note.text.splitlines() if not is_rendered(line))
        if not text.strip():
            self.memory.write(note=note)
            why = "the note is empty" if not note.text.strip() else "the note is this memory's own output"
            return NoteReport(OutcomeKind.EMPTY, (), (), why)
        outcome = self._checked(
            self.extractor.extract(note.model_copy(update={"text": text}), self.memory.schema)
        )
        self.extract_outcomes[outcome.kind] += 1
        failures: list[Failure] = []
        if outcome.value is None:
            outcome = self._instead(note, outcome, failures)
        claims = outcome.value or []
        decisions = self.memory.write(claims, note=note, failures=failures)
        reason = "" if claims else outcome.detail or "the extractor found no claim"
        return NoteReport(outcome.kind, tuple(claims), tuple(decisions), reason)

    def ingest_claims(self, claims: Sequence[StateClaim]) -> list[tuple[StateClaim, Decision | None]]:
        """Take claims in that need no extraction. Raises: as `Memory.write`."""
        return self.memory.write(claims)

    def ingest_findings(self, findings: Sequence[Finding]) -> FindingBoard:
        """Append findings and check all there are; the board says what conflicts and whether to replan."""
        self.memory.write(findings=findings)
        return settle(self.memory.findings.values(), self.reconciler)

    def _checked(self, outcome: Outcome[list[StateClaim]]) -> Outcome[list[StateClaim]]:
        """An answer that names an unknown slot is malformed as a whole."""
        try:
            for claim in outcome.value or []:
                self.memory.schema.canonical(claim)
        except SchemaError as fault:
            return Outcome(OutcomeKind.MALFORMED, None, str(fault))
        return outcome

    def _instead(
        self, note: Note, outcome: Outcome[list[StateClaim]], failures: list[Failure]
    ) -> Outcome[list[StateClaim]]:
        name = f"extract-state {self.extractor.identity}"
        if self.on_failure is FailurePolicy.RAISE:
            raise OperatorFailure(
                f"{name} gave no usable answer on note {note.source_id} ({outcome.kind}): {outcome.detail}",
                hint="set the failure policy to `rules` or `propose` to go on without it",
            )
        failures.append(Failure(name, note.source_id, outcome.kind, outcome.detail, self.on_failure.value))
        if self.on_failure is FailurePolicy.RULES:
            return self.rules.extract(note, self.memory.schema)
        return Outcome(outcome.kind, None, f"{name} gave no usable answer: {outcome.detail}")
