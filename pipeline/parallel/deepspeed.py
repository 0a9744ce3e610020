"""The one importer of DeepSpeed: engine, ZeRO, and the logical state behind them.

DeepSpeed's engine knows expert parallelism by its own `MoE` class, by tags on parameters and by names of optimizer
groups. It gets them from `ExpertView` and `build_optimizer`; what was measured of it stands in tests/parallel as
contract tests.
"""

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.model.transformer import Transformer
from pipeline.parallel.config import BUCKET
from pipeline.parallel.gradient_norm import GradientNorm
from pipeline.parallel.logical_state import LogicalState
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.optimizer import OptimizerSettings, build_optimizer, set_learning_rate
from pipeline.parallel.partition import expert_parameters

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import deepspeed
    from deepspeed.moe.layer import MoE as DeepSpeedMoE
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler
    from deepspeed.utils import groups as deepspeed_groups
    from deepspeed.utils import logger as deepspeed_logger

warnings.filterwarnings(
    "ignore", category=FutureWarning, message=r".*torch\.distributed\..* is deprecated"
)  # its calls


AUTOCAST = {"bf16": "bfloat16", "fp16": "float16"}
INITIAL_LOSS_SCALE = 2.0**16
LOSS_SCALE_WINDOW = 1000  # steps without overflow after which the scale doubles
SCALER_STATE = ("cur_scale", "cur_iter", "last_overflow_iter")


class ExpertView(DeepSpeedMoE):  # type: ignore[misc]
    """Tells the engine that there are experts and how they are cut; holds no parameter and computes nothing."""

    def __init__(self, num_experts: int, mesh: Mesh) -> None:
        nn.Module.__init__(self)
        self.num_experts = num_experts
        self.ep_size = mesh.layout.parts(mesh.expert_axis)
        self.num_local_experts = num_experts // self.ep_size
        self.expert_group_name = mesh.expert_group_name
        self._mesh = mesh

    def set_deepspeed_parallelism(self, _use_data_before_expert_parallel: bool = False) -> None:
        """Give DeepSpeed the mesh's groups; its own are laid out otherwise where there is a model axis."""
        name, mesh = self.expert_group_name, self._mesh
        deepspeed_groups._EXPERT_PARALLEL_GROUP[name] = mesh.group(*mesh.expert_axis)
        deepspeed_groups._EXPERT_DATA_PARALLEL_GROUP[name] = mesh.group(*mesh.layout.expert_copies)

    def forward(self, *_args: Any) -> None:
        raise AssertionError("ExpertView is never called; the model's own MoE layers compute")


class EngineModule(nn.Module):
    """What DeepSpeed wraps: the model, and the view of its experts."""

    def __init__(self, model: Transformer, mesh: Mesh) -> None:
        super().__init__()
        self.model = model
        if model.config.moe.num_experts:
            self.view = ExpertView(model.config.moe.num_experts, mesh)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)


class Engine:
    """A model cut for the mesh, its optimizer and ZeRO, and its state under logical names.

    accumulation: micro-batches of one group per step and process. clip: gradient norm over all parameters, 0 for none.
    precision: fp32, or bf16 or fp16 by autocast (weights, masters and gate stay float32; fp16 scales the loss), or
    float64 for a model in it, whose gradients are then reduced in float64; masters and clip norm stay float32. ema:
    decay of a moving average of the weights, kept beside the optimizer's moments in float32; 0 keeps none. accepts:
    whether a step with this finite gradient norm may update the weights; all processes must say the same.

    updates: how often the weights were updated. A step whose gradients are not finite, or whose norm is not accepted,
    updates nothing on any process: no weight, moment or average.
    """

    def __init__(
        self,
        model: Transformer,
        mesh: Mesh,
        *,
        accumulation: int,
        zero_stage: int,
        clip: float,
        optimizer: OptimizerSettings,
        precision: str,
        ema: float = 0.0,
        accepts: Callable[[float], bool] = lambda norm: True,
    ) -> None:
        self.model, self.mesh = model, mesh
        self.world = mesh.get_data_parallel_world_size()
        self.ema = ema
        self.updates = 0
        experts = expert_parameters(model)
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": accumulation,
            "gradient_clipping": clip,
            "zero_optimization": {
                "stage": zero_stage,
                "contiguous_gradients": True,
                "reduce_scatter": True,
                "reduce_bucket_size": min(BUCKET, sum(p.numel() for p in model.parameters())),
                "overlap_comm": False,
            },
            "zero_allow_untested_optimizer": True,
            "torch_autocast": {"enabled": precision in AUTOCAST, "dtype": AUTOCAST.get(precision, "bfloat16")},
            "steps_per_print": 10**12,
        }
        deepspeed_logger.setLevel(logging.ERROR)
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else a JIT build, 30 s and a compiler
        deepspeed.init_distributed(dist_backend=torch.distributed.get_backend(), verbose=False)
        self.engine, self.zero, _, _ = deepspeed.initialize(
            model=EngineModule(model, mesh),
            optimizer=build_optimizer(model, experts, optimizer, expert_group=mesh.expert_group_name),
            config=config,
            mpu=mesh,
            dist_init_required=False,
        )
        self._state = LogicalState(model, self.zero, mesh, experts, ema)
        if precision == "float64":
            self._reduce_in_float64()
        # For fp16 there is a GradScaler, which lets scaled gradients be clipped and never lowers the scale
        self.zero.torch_autocast_gradscaler = None
        if precision == "fp16":
            self.zero.loss_scaler = DynamicLossScaler(
                init_scale=INITIAL_LOSS_SCALE,
                scale_window=LOSS_SCALE_WINDOW,
                min_scale=1.0,
                delayed_shift=1,
                consecutive_hysteresis=False,
                raise_error_at_min_scale=False,
            )
        self.gradient_norm, self.loss_scale = math.nan, 1.0
        self._refused = False
        self._look_at_norms(accepts)

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
        set_learning_rate(self.zero.param_groups, learning_rate)
        scaler = vars(self.zero.loss_scaler).copy()
        self.engine.step()
        if self.updated:
            self.updates += 1
            if self.ema:
                self._state.move_average(self.updates)
        elif self._refused:
            vars(self.zero.loss_scaler).update(scaler)  # it was no overflow

    @property
    def updated(self) -> bool:
        """Whether the last call of `step` updated the weights."""
        return bool(self.engine.was_step_applied())

    def _look_at_norms(self, accepts: Callable[[float], bool]) -> None:
        """In place of ZeRO's own norm. What ZeRO takes for an overflow (-1) it skips on every process
        (contract-tested)."""
        compute = GradientNorm(self.model, self.zero, self.mesh)

        def norm_of_step() -> Tensor:
            norm = compute()
            self.loss_scale = float(self.zero.loss_scale)
            found = float(norm) / self.loss_scale
            self.gradient_norm = found if math.isfinite(found) else math.inf
            self._refused = math.isfinite(found) and not accepts(found)
            return norm if math.isfinite(found) and not self._refused else torch.full_like(norm, -1.0)

        self.zero.scaled_global_norm = norm_of_step

    def gradients(self) -> dict[str, Tensor]:
        """Full gradients of a step by logical name, before clipping; experts as in `weights`. A collective, between the
        last backward pass of a step and `step`."""
        return self._state.gradients()

    def weights(self) -> dict[str, Tensor]:
        """Full float32 masters by logical name; experts as DTensors with a global expert dimension. A collective."""
        return dict(self._state.weights())

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """`weights()`, the optimizer's moments and the moving average, one by one, each made anew. A collective."""
        if not self.updates:
            self._state.allocate(0)
        return self._state.tensors()

    def state(self) -> dict[str, Tensor]:
        """All of `tensors()` at once."""
        return dict(self.tensors())

    def counters(self) -> dict[str, Any]:
        """What a checkpoint holds of the engine beside tensors, for `resume`."""
        scaler = vars(self.zero.loss_scaler)
        return {"updates": self.updates, "loss_scaler": {k: scaler[k] for k in SCALER_STATE if k in scaler}}

    def resume(self, counters: dict[str, Any]) -> None:
        """Go on from `counters`, and give every ZeRO partition the optimizer's state, to be overwritten by `load`."""
        self.updates = counters["updates"]
        vars(self.zero.loss_scaler).update(counters.get("loss_scaler", {}))
        self._state.allocate(self.updates)

    def load(self, state: dict[str, Tensor]) -> None:
        """Overwrite masters, working weights and moments from a state shaped as `state()`."""
        self._state.load(state)

    def averaged(self) -> AbstractContextManager[None]:
        """Compute with the moving average where there is one. A collective."""
        return self._state.averaged() if self.ema and self.updates else nullcontext()

    def _reduce_in_float64(self) -> None:
        """DeepSpeed accumulates and reduces in float32 at most, and has no setting for more (contract-tested)."""
        self.zero.gradient_accumulation_dtype = torch.float64
        self.zero.use_separate_grad_accum = self.zero.use_grad_accum_attribute = False
        self.zero.communication_data_type = torch.float64
        self.zero.ipg_buckets = {torch.float64: type(next(iter(self.zero.ipg_buckets.values())))()}
