"""What is known to go wrong in this stack, one small check each, in one registry.

`GUARDS` is the list; `ELSEWHERE` says where the rest of T01 to T33 is guarded. A guard looks at files only.
"""

from __future__ import annotations

from training.guards import adapter, base, environment, recipe, rows
from training.guards.findings import Fault, Finding, Guard
from training.guards.inspected import Inspected
from training.guards.options import foreign

__all__ = ["ELSEWHERE", "GUARDS", "Fault", "Finding", "Guard", "Inspected", "find_faults"]

GUARDS: tuple[Guard, ...] = (
    Guard("T01", "the base can be quantised and served", base.base_is_not_prequantised),
    Guard("T02", "installed versions work together", environment.versions_work_together),
    Guard("T03", "quantisation is asked for by name", foreign("T03")),
    Guard("T04", "the dtype is stated", recipe.dtype_is_stated),
    Guard("T06", "NF4 is complete", recipe.nf4_is_complete),
    Guard("T08", "no option of an older release", foreign("T08")),
    Guard("T11", "the loss is on completions", foreign("T11")),
    Guard("T11", "rows are prompt and completion", rows.rows_are_prompt_and_completion),
    Guard("T12", "every row has labels", rows.rows_have_labels),
    Guard("T13", "nothing is cut", foreign("T13")),
    Guard("T13", "rows fit max_length", rows.rows_fit_max_length),
    Guard("T14", "max_length is stated", recipe.max_length_is_stated),
    Guard("T15", "no liger kernel", foreign("T15")),
    Guard("T16", "pad is not end of turn", recipe.pad_is_not_eos),
    Guard("T16", "pad and end of turn are tokens of the base", base.pad_and_eos_are_tokens),
    Guard("T17", "generation stops at the end of turn only", base.generation_stops_at_eos),
    Guard("T18", "the template ends turns with eos", base.template_ends_turns_with_eos),
    Guard("T18", "the end of turn is labelled", rows.rows_end_with_eos),
    Guard("T19", "prompts are prefixes", rows.prompts_are_prefixes),
    Guard("T20", "rows do not see each other", recipe.rows_do_not_see_each_other),
    Guard("T21", "the template keeps our system message", base.template_keeps_our_system_message),
    Guard("T21", "rows have our system message", rows.rows_have_our_system_message),
    Guard("T22", "no control token in a message", rows.rows_hold_no_control_token),
    Guard("T23", "the vocabulary stays", foreign("T23")),
    Guard("T23", "the vocabulary fits the embeddings", base.vocabulary_fits_embeddings),
    Guard("T23", "the adapter is small", adapter.adapter_is_small),
    Guard("T24", "no module is trained whole", foreign("T24")),
    Guard("T24", "the adapter holds no whole module", adapter.adapter_saves_no_module),
    Guard("T25", "no layer is listed twice", recipe.no_layer_twice),
    Guard("T25", "the adapter lists no layer twice", adapter.adapter_lists_no_layer_twice),
    Guard("T09", "the adapter's keys are known", adapter.config_keys_are_known),
    Guard("T28", "targets can be served", recipe.targets_can_be_served),
    Guard("T28", "the adapter's tensors are LoRA only", adapter.tensors_are_lora_only),
    Guard("T29", "LoRA is plain", foreign("T29")),
    Guard("T29", "the adapter is plain LoRA", adapter.adapter_is_plain_lora),
    Guard("T30", "LoRA has one scale", foreign("T30")),
    Guard("T30", "the adapter has one scale", adapter.adapter_has_one_scale),
    Guard("T31", "the rank can be served", recipe.rank_can_be_served),
    Guard("T31", "the adapter's rank can be served", adapter.adapter_rank_can_be_served),
    Guard("T32", "no merge is asked for", foreign("T32")),
    Guard("T32", "nothing was merged into 4 bits", adapter.nothing_was_merged_into_4_bits),
    Guard("T33", "the adapter is of this base", adapter.adapter_is_of_this_base),
)

ELSEWHERE: dict[str, str] = {
    "T05": "operators/adapters.py: the dtype stands in every adapter.json",
    "T07": "tests/training/test_preflight.py: rendering gives a list of ints",
    "T10": "tests/training/test_preflight_guards.py: nothing here imports vllm",
    "T26": "tests/training/test_folds.py: trainable parameters are the expected count",
    "T27": "operators/adapters.py: the adapter's own dtype stands in adapter.json",
}
"""Guards that files cannot give: the place that holds each instead."""


def find_faults(seen: Inspected) -> list[Finding]:
    """Every fault of every guard, in the registry's order."""
    return [
        Finding(guard.id, fault.where, fault.message, fault.hint)
        for guard in GUARDS
        for fault in guard.check(seen)
    ]
