"""What the timing keys of RL frameworks count as: one table, the same in ``docs/model.md``.

Names are as the frameworks' own sources write them. Keys that are not in the table, such as those nested inside one
that is (veRL's ``timing_s/reshard`` inside ``timing_s/gen``), count for nothing. To add a framework, add a row.
"""

import re

import msgspec

_CALLED = re.compile(r"^profiling/Time taken: \w+\.(.+)$")


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """A framework's keys by what they count as; seconds of the keys of one part are added up.

    A part's later alternatives stand in where no key of an earlier one is there. ``total`` is the whole iteration:
    what it has beyond the other parts is *other*, or *training* where ``training`` has no keys. ``overlapped``: keys
    of a run whose rollout and training overlap already.
    """

    name: str
    rollout: tuple[tuple[str, ...], ...]
    training: tuple[tuple[str, ...], ...]
    sync: tuple[str, ...]
    other: tuple[str, ...]
    total: tuple[str, ...]
    overlapped: tuple[str, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """All keys."""
        alternatives = [key for keys in (*self.rollout, *self.training) for key in keys]
        return frozenset((*alternatives, *self.sync, *self.other, *self.total, *self.overlapped))


FRAMEWORKS = (
    Framework(
        name="veRL",
        rollout=(("timing_s/generate_async",), ("timing_s/gen", "timing_s/gen_max"), ("timing_s/generate_sequences",)),
        training=(
            (
                "timing_s/old_log_prob",
                "timing_s/ref",
                "timing_s/RefPolicy",
                "timing_s/values",
                "timing_s/update_critic",
                "timing_s/update_actor",
            ),
        ),
        sync=("timing_s/update_weights", "timing_s/sync_rollout_weights"),
        other=("timing_s/reward", "timing_s/adv", "timing_s/testing", "timing_s/save_checkpoint"),
        total=("timing_s/step",),
        overlapped=("timing_s/generate_async", "timing_s/wait_prev_gen"),
    ),
    Framework(
        name="TRL",
        rollout=(
            ("profiling/vLLM.generate",),
            ("profiling/transformers.generate", "profiling/transformers.generate_batch"),
            ("profiling/generate",),
        ),
        training=(),
        sync=("profiling/sync_weights", "profiling/_move_model_to_vllm"),
        other=("profiling/_calculate_rewards",),
        total=("step_time",),
    ),
    Framework(
        name="OpenRLHF",
        rollout=(("timing/generation",),),
        training=(("timing/make_experience", "timing/ppo_train"),),
        sync=("timing/broadcast",),
        other=(),
        total=("timing/step_total",),
        overlapped=("timing/actor_idle_wait", "timing/vllm_idle_wait"),
    ),
    Framework(
        name="slime",
        rollout=(("perf/rollout_time",),),
        training=(("perf/train_time",), ("perf/log_probs_time", "perf/ref_log_probs_time", "perf/actor_train_time")),
        sync=("perf/update_weights_time",),
        other=("perf/sleep_time", "perf/wake_up_time", "perf/save_model_time"),
        total=("perf/step_time",),
    ),
    Framework(
        name="ROLL",
        rollout=(("time/step_generate",), ("time/step_rollout",)),
        training=(
            (
                "time/ref_log_probs_values",
                "time/old_log_probs",
                "time/step_old_log_probs_values",
                "time/step_train",
            ),
        ),
        sync=("time/step_model_update",),
        other=("time/val_step", "time/step_val", "time/step_log", "time/step_compute_data_metrics"),
        total=("time/step_total",),
    ),
)

KNOWN_KEYS = frozenset().union(*(framework.keys for framework in FRAMEWORKS))


def plain_key(key: str) -> str:
    """A key as the table has it: without a leading ``train/``, and TRL's without the trainer's class."""
    plain = key.strip().removeprefix("train/")
    called = _CALLED.match(plain) if plain.startswith("profiling/") else None
    return f"profiling/{called[1]}" if called else plain
