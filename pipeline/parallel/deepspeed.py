"""The one importer of DeepSpeed: engine, ZeRO, and the logical state behind them.

DeepSpeed's engine knows expert parallelism by its own `MoE` class, by tags on parameters and by names of optimizer
groups. It gets them from `ExpertView` and `_optimizer`; what was measured of it stands in tests/parallel as contract
tests.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import deepspeed
    from deepspeed.moe.layer import MoE as DeepSpeedMoE
    from deepspeed.utils import groups as deepspeed_groups
    from deepspeed.utils import logger as deepspeed_logger
    from deepspeed.utils import (
        safe_get_full_fp32_param,
        safe_get_full_optimizer_state,
        safe_set_full_fp32_param,
        safe_set_full_optimizer_state,
    )

warnings.filterwarnings(
    "ignore", category=FutureWarning, message=r".*torch\.distributed\..* is deprecated"
)  # its calls

MOMENTS = ("exp_avg", "exp_avg_sq")
EMA = "ema"


class ExpertView(DeepSpeedMoE):  # type: ignore[misc]
    """Tells the engine that there are experts and how they are cut; holds no parameter and computes nothing."""

    def __init__(self, num_experts: int, ep: int) -> None:
        nn.Module.__init__(self)
        self.num_experts = num_experts
        self.num_local_experts = num_experts // ep
        self.ep_size = ep
        self.expert_group_name = f"ep_size_{ep}"

    def set_deepspeed_parallelism(self, use_data_before_expert_parallel_: bool = False) -> None:
        if self.expert_group_name not in deepspeed_groups._get_expert_parallel_group_dict():
            deepspeed_groups._create_expert_and_data_parallel(self.ep_size, use_data_before_expert_parallel_)

    def forward(self, *_args: Any) -> None:
        raise AssertionError("ExpertView is never called; the model's own MoE layers compute")


class EngineModule(nn.Module):
    """What DeepSpeed wraps: the model, and the view of its experts."""

    def __init__(self, model: Transformer, ep: int) -> None:
        super().__init__()
        self.model = model
        if model.config.moe.num_experts:
            self.view = ExpertView(model.config.moe.num_experts, ep)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)


class Engine:
    """A model cut for the mesh, its AdamW and ZeRO, and its state under logical names.

    accumulation: micro-batches of one group per step and process. clip: gradient norm over all parameters, 0 for none.
    precision: fp32, or bf16 by autocast (weights, masters and gate stay float32), or float64 for a model in it, whose
    gradients are then reduced in float64; masters and clip norm stay float32. ema: decay of a moving average of the
    weights, kept beside the optimizer's moments in float32; 0 keeps none.
    """

    def __init__(
        self,
        model: Transformer,
        mesh: Mesh,
        *,
        accumulation: int,
        zero_stage: int,
        clip: float,
        betas: tuple[float, float],
        epsilon: float,
        weight_decay: float,
        precision: str,
        ema: float = 0.0,
    ) -> None:
        self.model, self.mesh = model, mesh
        self.world = mesh.get_data_parallel_world_size()
        self.ema = ema
        self._moments = (*MOMENTS, EMA) if ema else MOMENTS
        self._experts = expert_parameters(model)
        ep = mesh.size("expert")
        optimizer = self._optimizer(ep, betas, epsilon, weight_decay)
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": accumulation,
            "gradient_clipping": clip,
            "zero_optimization": {
                "stage": zero_stage,
                "contiguous_gradients": True,
                "reduce_scatter": True,
                "overlap_comm": False,
            },
            "zero_allow_untested_optimizer": True,
            "torch_autocast": {"enabled": precision == "bf16", "dtype": "bfloat16"},
            "steps_per_print": 10**12,
        }
        deepspeed_logger.setLevel(logging.ERROR)
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else a JIT build, 30 s and a compiler
        deepspeed.init_distributed(dist_backend=torch.distributed.get_backend(), verbose=False)
        self.engine, self.zero, _, _ = deepspeed.initialize(
            model=EngineModule(model, ep),
            optimizer=optimizer,
            config=config,
            mpu=mesh,
            dist_init_required=False,
        )
        if precision == "float64":
            self._reduce_in_float64()

    def _optimizer(self, ep: int, betas: tuple[float, float], epsilon: float, weight_decay: float) -> torch.optim.AdamW:
        """AdamW with the groups ZeRO wants: dense (decayed or not), and experts of one tag. Vectors are not decayed."""
        decayed: list[nn.Parameter] = []
        plain: list[nn.Parameter] = []
        experts: list[nn.Parameter] = []
        for name, parameter in self.model.named_parameters():
            if name in self._experts:
                parameter.allreduce = False  # type: ignore[attr-defined]
                parameter.group_name = f"ep_size_{ep}"  # type: ignore[attr-defined]
                experts.append(parameter)
            else:
                (decayed if parameter.dim() > 1 else plain).append(parameter)
        param_groups: list[dict[str, Any]] = [{"params": decayed, "name": "dense"}]
        param_groups.append({"params": plain, "name": "vectors", "weight_decay": 0.0})
        if experts:
            param_groups.append({"params": experts, "name": f"ep_size_{ep}", "moe": True})
        return torch.optim.AdamW(param_groups, lr=0.0, betas=betas, eps=epsilon, weight_decay=weight_decay, fused=True)

    def train(self, mode: bool = True) -> None:
        self.engine.train(mode)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.engine(*args, **kwargs)

    def backward(self, loss: Tensor) -> None:
        """loss: this micro-batch's share of the whole step's loss. ZeRO divides gradients by the world size, the
        experts' too, and accumulation by nothing; hence the factor."""
        self.engine.backward(loss * self.world, scale_wrt_gas=False)

    def step(self, learning_rate: float) -> None:
        """To be called after every micro-batch; updates the weights after the last one of a step."""
        for group in self.zero.param_groups:
            group["lr"] = learning_rate
        before = self.engine.global_steps
        self.engine.step()
        if self.ema and self.engine.global_steps > before:
            self._move_average()

    @property
    def gradient_norm(self) -> float:
        """Of the last step, before clipping, over all parameters of all processes."""
        return float(self.engine.get_global_grad_norm())

    def gradients(self) -> dict[str, Tensor]:
        """Full gradients of a step by logical name, before clipping; experts as in `weights`. A collective, between the
        last backward pass of a step and `step`."""
        return {n: self._logical(n, _full_gradient(p)) for n, p in self._named()}

    def weights(self) -> dict[str, Tensor]:
        """Full float32 masters by logical name; experts as DTensors with a global expert dimension. A collective."""
        return {f"model.{n}": self._logical(n, safe_get_full_fp32_param(p)) for n, p in self._named()}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """`weights()`, both moments of AdamW and the moving average, one by one, each made anew. A collective; needs
        one step or `allocate_moments`."""
        self._link()
        for name, parameter in self._named():
            yield f"model.{name}", self._logical(name, safe_get_full_fp32_param(parameter))
        for moment in self._moments:
            for name, parameter in self._named():
                yield f"{moment}.{name}", self._logical(name, safe_get_full_optimizer_state(parameter, moment))

    def state(self) -> dict[str, Tensor]:
        """All of `tensors()` at once."""
        return dict(self.tensors())

    def allocate_moments(self, step: int) -> None:
        """Give every ZeRO partition the state that AdamW has after `step` steps, zeros for moments, to be
        overwritten."""
        for partition in self.zero.single_partition_of_fp32_groups:
            self.zero.optimizer.state[partition] = {
                "step": torch.tensor(float(step), device=partition.device),
                **{moment: torch.zeros_like(partition) for moment in self._moments},
            }

    def load(self, state: dict[str, Tensor]) -> None:
        """Overwrite masters, working weights and moments from a state shaped as `state()`."""
        self._link()
        for name, parameter in self._named():
            value = self._local(state[f"model.{name}"])
            parameter.data.copy_(value)
            safe_set_full_fp32_param(parameter, value)
            for moment in self._moments:
                full = self._local(state[f"{moment}.{name}"])
                safe_set_full_optimizer_state(parameter, full, moment)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Compute with the moving average where there is one. A collective."""
        if not self.ema:
            yield
            return
        self._link()
        kept = {name: parameter.detach().clone() for name, parameter in self._named()}
        for _, parameter in self._named():
            parameter.data.copy_(safe_get_full_optimizer_state(parameter, EMA))
        try:
            yield
        finally:
            for name, parameter in self._named():
                parameter.data.copy_(kept[name])

    def _move_average(self) -> None:
        """Of this process's partitions, as state of the optimizer, which knows nothing of it; it starts at the weights
        after the first step."""
        for partition in self.zero.single_partition_of_fp32_groups:
            state = self.zero.optimizer.state[partition]
            if EMA in state:
                state[EMA].lerp_(partition.detach(), 1 - self.ema)
            else:
                state[EMA] = partition.detach().clone()

    def _reduce_in_float64(self) -> None:
        """DeepSpeed accumulates and reduces in float32 at most, and has no setting for more (contract-tested)."""
        self.zero.gradient_accumulation_dtype = torch.float64
        self.zero.use_separate_grad_accum = self.zero.use_grad_accum_attribute = False
        self.zero.communication_data_type = torch.float64
        self.zero.ipg_buckets = {torch.float64: type(next(iter(self.zero.ipg_buckets.values())))()}

    def _named(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self.model.named_parameters()

    def _logical(self, name: str, full: Tensor) -> Tensor:
        if name in self._experts and self.mesh.size("expert") > 1:
            return DTensor.from_local(full, self.mesh.devices["expert"], [Shard(0)], run_check=False)
        return full

    @staticmethod
    def _local(value: Tensor) -> Tensor:
        return value.to_local() if isinstance(value, DTensor) else value

    def _link(self) -> None:
        """Link every group's moments; DeepSpeed stops after the first group that has stepped (contract-tested)."""
        self.zero._hp_optimizer_states_linked = False
        self.zero._lazy_init_hp_params_optimizer_state()


def _full_gradient(parameter: Any) -> Tensor:
    """From the parts that ZeRO's partitions hold, in their dtype; DeepSpeed's own way to it rounds to float32."""
    full = torch.zeros_like(parameter).flatten()
    if parameter._hp_mapping is not None:
        place = parameter._hp_mapping.lp_fragment_address
        part = parameter._hp_mapping.get_lp_grad_fragment(parameter._index_in_param_group)
        full[place.start : place.start + place.numel] = part.flatten()
    torch.distributed.all_reduce(full, group=parameter._dp_group)
    return full.view_as(parameter)
