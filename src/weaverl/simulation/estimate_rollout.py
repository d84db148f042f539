"""The rollout of an estimate: prefill, then decode steps whose batch thins out as responses end.

A step reads the weights once and the keys and values of every running response; memory or compute bounds it,
whichever takes longer (roofline: Williams et al., 2009; for decoding: Pope et al., *Efficiently Scaling Transformer
Inference*, 2023).
"""

from math import sqrt

from weaverl.errors import UsageError
from weaverl.simulation.estimate_inputs import Efficiencies, Term, Workload, ended_share, mean_length

_GRID = 256
"""Points of the integral over the length of a response."""


class Rollout:
    """Times of a rollout: prefill, then decode steps whose batch thins out as responses end."""

    def __init__(self, workload: Workload, efficiencies: Efficiencies) -> None:
        self._work, self._share = workload, efficiencies
        self.tensor_parallel = _tensor_parallel(workload, efficiencies)
        self._replicas = workload.rollout_gpus // self.tensor_parallel
        self._batch = workload.responses / self._replicas
        self._room = self._concurrent()
        lengths, elapsed = self._decode_times()
        waiting = self._waiting()
        prefill = self._prefill()
        turns = (workload.turns - 1) * workload.turn_seconds
        fixed = prefill + turns + waiting
        chances = self._chance_of_longest(lengths)
        decode = sum(chance * time for chance, time in zip(chances, elapsed, strict=True))
        square = sum(chance * time * time for chance, time in zip(chances, elapsed, strict=True))
        self.at_cap = fixed + elapsed[-1]
        self.mean = fixed + decode
        self.cv = sqrt(max(square - decode * decode, 0.0)) / self.mean
        self.terms = self._describe(prefill, turns, waiting, elapsed[-1])

    def _step_seconds(self, batch: float, context: float) -> float:
        """One token for each of a replica's responses: memory-bound or compute-bound, plus what is fixed."""
        model, gpu, share = self._work.model, self._work.rollout_gpu, self._share
        memory = (model.weight_bytes + batch * context * model.kv_bytes_per_token) / (
            self.tensor_parallel * gpu.bandwidth_tb_s * 1e12 * share.bandwidth
        )
        flops = batch * (2 * model.parameters + model.attention_flops_per_token(context))
        compute = flops / (self.tensor_parallel * gpu.bf16_tflops * 1e12 * share.decode_flops)
        return max(memory, compute) + self._fixed_step()

    def _fixed_step(self) -> float:
        reduces = 2 * self._work.model.layers if self.tensor_parallel > 1 else 0
        return self._share.step_overhead_seconds + reduces * self._share.all_reduce_seconds

    def _concurrent(self) -> float:
        """Responses of mean length that a replica's key-value cache holds at once."""
        free = _free_bytes(self._work, self._share, self.tensor_parallel)
        return free / ((self._work.prompt_tokens + mean_length(self._work)) * self._work.model.kv_bytes_per_token)

    def _decode_times(self) -> tuple[list[float], list[float]]:
        """Lengths on a grid up to the cap, and the time by which a response of each length has ended."""
        stride = self._work.max_tokens / _GRID
        batch = min(self._batch, self._room)
        lengths, elapsed, total = [], [], 0.0
        for point in range(_GRID):
            middle = (point + 0.5) * stride
            active = max(batch * (1 - ended_share(self._work, middle)), 1.0)
            total += stride * self._step_seconds(active, self._context(middle))
            lengths.append((point + 1) * stride)
            elapsed.append(total)
        return lengths, elapsed

    def _context(self, generated: float) -> float:
        added = (self._work.turns - 1) * self._work.turn_tokens * generated / self._work.max_tokens
        return self._work.prompt_tokens + generated + added

    def _waiting(self) -> float:
        """Time until the last response has begun, where the cache does not hold them all."""
        left = max(self._batch - self._room, 0.0)
        if left == 0:
            return 0.0
        length = mean_length(self._work)
        return left * length / self._room * self._step_seconds(self._room, self._context(length / 2))

    def _prefill(self) -> float:
        work, gpu = self._work, self._work.rollout_gpu
        tokens = work.prompts * work.prompt_tokens + work.responses * (work.turns - 1) * work.turn_tokens
        flops = tokens * (2 * work.model.parameters + work.model.attention_flops_per_token(work.prompt_tokens / 2))
        return flops / (work.rollout_gpus * gpu.bf16_tflops * 1e12 * self._share.prefill_flops)

    def _chance_of_longest(self, lengths: list[float]) -> list[float]:
        """Chance that the longest response ends in each stretch of the grid; the cap takes the rest."""
        below = [ended_share(self._work, length) ** self._work.responses for length in lengths[:-1]] + [1.0]
        return [high - low for low, high in zip([0.0, *below], below, strict=False)]

    def _describe(self, prefill: float, turns: float, waiting: float, decode: float) -> tuple[Term, ...]:
        work, gpu, share, model = self._work, self._work.rollout_gpu, self._share, self._work.model
        batch = min(self._batch, self._room)
        first = self._step_seconds(batch, work.prompt_tokens)
        last = self._step_seconds(1.0, self._context(work.max_tokens))
        return (
            Term(
                "replicas",
                self._replicas,
                "",
                f"{work.rollout_gpus} {gpu.name} / tensor parallel {self.tensor_parallel}; {self._batch:.0f} responses "
                f"each, the cache holds {self._room:.0f}",
            ),
            Term(
                "decode step, all responses",
                first * 1e3,
                "ms",
                f"max(({model.weight_bytes / 1e9:.1f} GB weights + {batch:.0f} x {work.prompt_tokens} tokens x "
                f"{model.kv_bytes_per_token / 1e3:.0f} kB) / ({self.tensor_parallel} x {gpu.bandwidth_tb_s:g} TB/s x "
                f"{share.bandwidth:g}), {batch:.0f} x 2 x {model.billions:.1f}e9 / ({self.tensor_parallel} x "
                f"{gpu.bf16_tflops:g} TFLOPS x {share.decode_flops:g})) + {self._fixed_step() * 1e3:.1f} ms",
            ),
            Term(
                "decode step, the last response",
                last * 1e3,
                "ms",
                f"the same with 1 x {self._context(work.max_tokens):.0f} tokens",
            ),
            Term(
                "prefill",
                prefill,
                "s",
                f"{work.prompts} prompts x {work.prompt_tokens} tokens x 2 x {model.billions:.1f}e9 / "
                f"({work.rollout_gpus} x {gpu.bf16_tflops:g} TFLOPS x {share.prefill_flops:g})",
            ),
            Term("waiting for cache", waiting, "s", "responses that the cache does not hold x mean length x step"),
            Term("environment", turns, "s", f"{work.turns - 1} x {work.turn_seconds:g} s between turns"),
            Term("decode to the cap", decode, "s", f"{work.max_tokens} steps, from all responses to the last"),
            Term("rollout at the cap", self.at_cap, "s", "prefill + waiting + environment + decode"),
            Term(
                "rollout, mean",
                self.mean,
                "s",
                f"to the longest of {work.responses} responses, lognormal of mean {work.mean_tokens:.0f} and cv "
                f"{work.length_cv:g}",
            ),
            Term("rollout, cv", self.cv, "", "spread of the longest response"),
        )


def _tensor_parallel(workload: Workload, share: Efficiencies) -> int:
    """GPUs that hold one copy of the weights together."""
    wanted = workload.tensor_parallel or smallest_parallel(workload, share)
    if workload.rollout_gpus % wanted:
        problem = f"tensor parallelism {wanted} does not divide {workload.rollout_gpus} rollout GPUs"
        raise UsageError(f"{problem}: give --rollout-gpus a multiple of it, or --tensor-parallel")
    return wanted


def smallest_parallel(workload: Workload, share: Efficiencies) -> int:
    """The smallest power of two that leaves weights at most their share of a GPU's memory."""
    size = 1
    while (
        size * 2 <= workload.rollout_gpus
        and workload.model.weight_bytes > size * workload.rollout_gpu.memory_gb * 1e9 * share.weights_share
    ):
        size *= 2
    return size


def _free_bytes(workload: Workload, share: Efficiencies, tensor_parallel: int) -> float:
    """Room for keys and values on a replica. Raises UsageError if it does not hold one response at the cap."""
    gpu, model = workload.rollout_gpu, workload.model
    usable = tensor_parallel * gpu.memory_gb * 1e9 * share.usable_memory
    free = usable - model.weight_bytes
    least = (workload.prompt_tokens + workload.max_tokens) * model.kv_bytes_per_token
    if free < least:
        raise UsageError(
            f"{model.name} does not fit {tensor_parallel} {gpu.name} for rollout: {model.weight_bytes / 1e9:.1f} GB of "
            f"weights and {least / 1e9:.1f} GB for one response at the cap, {usable / 1e9:.1f} GB usable; "
            f"give more --rollout-gpus"
        )
    return free
