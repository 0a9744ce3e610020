"""The engine: DeepSpeed with ZeRO, and the state of training by logical names. No other module imports DeepSpeed.

DeepSpeed recognises expert parallelism by its own `MoE` class, by tags on parameters and by names of optimizer groups.
`ExpertView` and `build_optimizer` provide them. Contract tests in tests/parallel check what we assume of DeepSpeed.
"""

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.engine import BUCKET
from pipeline.engine.expert_bias import ExpertBiases
from pipeline.engine.gradient_norm import GradientNorm
from pipeline.engine.logical_state import LogicalState
from pipeline.engine.optimizer import OptimizerSettings, build_optimizer, set_learning_rate
from pipeline.engine.optimizer_kinds import optimizer_kind
from pipeline.engine.replicas import Drift
from pipeline.model.projection import forget_copies, keep_copies
from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import deepspeed
    from deepspeed.moe.layer import MoE as DeepSpeedMoE
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler
    from deepspeed.utils import groups as deepspeed_groups
    from deepspeed.utils import logger as deepspeed_logger

_torch_compile = torch.compile
try:
    # DeepSpeed's Muon is compiled when it is imported, and that loads torch's compiler: a second of every process.
    # Nobody uses Muon here, so its functions may stay as they are.
    torch.compile = lambda function: function  # type: ignore[assignment]
    import_module("deepspeed.runtime.zero.muon.original_muon")
finally:
    torch.compile = _torch_compile

# DeepSpeed makes these calls.
warnings.filterwarnings("ignore", category=FutureWarning, message=r".*torch\.distributed\..* is deprecated")

AUTOCAST = {"bf16": "bfloat16", "fp16": "float16"}
INITIAL_LOSS_SCALE = 2.0**16
LOSS_SCALE_WINDOW = 1000  # steps without overflow after which the scale doubles
SCALER_STATE = ("cur_scale", "cur_iter", "last_overflow_iter")


class ExpertView(DeepSpeedMoE):  # type: ignore[misc]
    """Tells DeepSpeed that the model has experts and how they are cut. It has no parameters and computes nothing."""

    def __init__(self, num_experts: int, mesh: Mesh) -> None:
        nn.Module.__init__(self)
        self.num_experts = num_experts
        self.ep_size = mesh.layout.parts(mesh.expert_axis)
        self.num_local_experts = num_experts // self.ep_size
        self.expert_group_name = mesh.expert_group_name
        self._mesh = mesh

    def set_deepspeed_parallelism(self, _use_data_before_expert_parallel: bool = False) -> None:
        """Give DeepSpeed the mesh's groups, because its own are different if the mesh has a model axis."""
        name, mesh = self.expert_group_name, self._mesh
        deepspeed_groups._EXPERT_PARALLEL_GROUP[name] = mesh.group(*mesh.expert_axis)
        deepspeed_groups._EXPERT_DATA_PARALLEL_GROUP[name] = mesh.group(*mesh.layout.expert_copies)

    def forward(self, *_args: Any) -> None:
        raise AssertionError("ExpertView is never called; the model's own MoE layers compute")


class EngineModule(nn.Module):
    """The module that DeepSpeed wraps: the model, and the view of its experts if they train."""

    def __init__(self, model: Transformer, mesh: Mesh) -> None:
        super().__init__()
        self.model = model
        named = dict(model.named_parameters())
        if any(named[name].requires_grad for name in expert_parameters(model)):
            self.view = ExpertView(model.config.moe.num_experts, mesh)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)


class Engine:
    """A model that is cut for the mesh, with its optimizer and ZeRO, and its state under logical names.

    A step updates nothing on any process if its gradients are not finite or its norm is not accepted.

    model: parameters that require no gradient are frozen: they keep their bits, and DeepSpeed does not know of them.
    accumulation: micro-batches of one group, per step and process.
    zero_stage: 1 or 2.
    clip: largest gradient norm over all parameters; 0 does not clip.
    precision: fp32, bf16, fp16 or float64. bf16 and fp16 are by autocast: weights, masters and gate stay float32, and
        fp16 scales the loss. A GPU casts weights once a step, except those of experts without a capacity. float64 is
        for a model in float64, whose gradients are then reduced in float64. Masters and the clip norm stay float32.
    ema: decay of a moving average of the weights, which the optimizer's state keeps in float32; 0 keeps none.
    accepts: returns true if a step with this finite gradient norm may update the weights. All processes must agree.
    updates: the number of updates so far.
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
        self.ema = ema
        self.updates = 0
        experts = expert_parameters(model)
        for parameter in model.parameters():
            if not parameter.requires_grad:
                parameter.ds_optim_param = True  # type: ignore[attr-defined]  # is not broadcast at the start, as frozen experts must not be
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": accumulation,
            "gradient_clipping": clip,
            "zero_optimization": {
                "stage": zero_stage,
                "contiguous_gradients": True,
                "reduce_scatter": True,
                "reduce_bucket_size": min(BUCKET, sum(p.numel() for p in model.parameters() if p.requires_grad)),
                "overlap_comm": False,
            },
            "zero_allow_untested_optimizer": True,
            "timers": {"throughput": {"enabled": False}},  # it would wait for the GPU twice in every micro-batch
            "torch_autocast": {"enabled": precision in AUTOCAST, "dtype": AUTOCAST.get(precision, "bfloat16")},
            "steps_per_print": 10**12,
        }
        deepspeed_logger.setLevel(logging.ERROR)
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would need a compiler and a build of 30 s
        deepspeed.init_distributed(dist_backend=torch.distributed.get_backend(), verbose=False)
        self.engine, self.zero, _, _ = deepspeed.initialize(
            model=EngineModule(model, mesh),
            optimizer=build_optimizer(model, experts, optimizer, expert_group=mesh.expert_group_name),
            config=config,
            mpu=mesh,
            dist_init_required=False,
        )
        self._state = LogicalState(
            model, self.zero, mesh, experts, ema=ema, moments=optimizer_kind(optimizer.kind).moments
        )
        if precision == "float64":
            self._reduce_in_float64()
        # ZeRO's GradScaler for fp16 clips gradients that are still scaled, and it never lowers the scale.
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
        keep_copies(model.parameters())
        self._biases = ExpertBiases(model, mesh.get_data_parallel_group())

    def train(self, mode: bool = True) -> None:
        self.engine.train(mode)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        losses = self.engine(*args, **kwargs)
        if self.model.training:
            self._biases.count(losses.statistics)
        return losses

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a micro-batch. loss: its share of the whole step's loss.

        The factor is needed because ZeRO divides all gradients by the world size, and not by the accumulation.
        """
        self.engine.backward(loss * self.mesh.batch_size, scale_wrt_gas=False)

    def step(self, learning_rate: float) -> None:
        """End a micro-batch. The last one of a step updates the weights."""
        set_learning_rate(self.zero.param_groups, learning_rate)
        scaler = vars(self.zero.loss_scaler).copy()
        is_last = self.engine.is_gradient_accumulation_boundary()
        if is_last:
            forget_copies(p for p in self.model.parameters() if p.requires_grad)  # frozen weights do not change
        self.engine.step()
        if self.updated:
            self.updates += 1
            self._biases.move()
            if self.ema:
                self._state.move_average(self.updates)
        elif self._refused:
            vars(self.zero.loss_scaler).update(scaler)  # a refused step is no overflow
        if is_last:
            self._biases.clear()

    @property
    def updated(self) -> bool:
        """True if the last call of `step` updated the weights."""
        return bool(self.engine.was_step_applied())

    def _look_at_norms(self, accepts: Callable[[float], bool]) -> None:
        """Replace ZeRO's gradient norm. ZeRO skips a step with norm -1 on all processes (contract-tested)."""
        compute = GradientNorm(self.model, self.zero, self.mesh)

        def norm_of_step() -> Tensor:
            norm = compute()
            self.loss_scale = float(self.zero.loss_scale)
            unscaled = float(norm) / self.loss_scale
            finite = math.isfinite(unscaled)
            self.gradient_norm = unscaled if finite else math.inf
            self._refused = finite and not accepts(unscaled)
            return norm if finite and not self._refused else torch.full_like(norm, -1.0)

        self.zero.scaled_global_norm = norm_of_step

    def gradients(self) -> dict[str, Tensor]:
        """Return the full gradients of a step by logical name, before clipping; experts as in `weights`. A collective.

        Call this between the last backward pass of a step and `step`.
        """
        return self._state.gradients()

    def weights(self) -> dict[str, Tensor]:
        """Return full float32 masters by logical name. Experts are DTensors of all experts. A collective."""
        return dict(self._state.weights())

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights, the optimizer's moments and the moving average. Each is a new tensor. A collective."""
        return self._tensors(to_write=False)

    def tensors_to_write(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors of which this process writes its part to a checkpoint. A collective.

        Every process gets another share of `tensors`, of about the same size, and all of them together get each part
        of a tensor once. A tensor is freed once the caller drops it, so only one is whole at a time.
        """
        return self._tensors(to_write=True)

    def _tensors(self, *, to_write: bool) -> Iterator[tuple[str, Tensor]]:
        if not self.updates:
            self._state.allocate(0)
        return self._state.tensors(to_write=to_write)

    def state(self) -> dict[str, Tensor]:
        """Return all of `tensors()` at once, by name."""
        return dict(self.tensors())

    def repair_copies(self) -> Drift | None:
        """Make copies of weights and optimizer state equal that processes have updated by themselves. A collective.

        Those are parameters that an axis, such as model, neither cuts nor reduces: norms and routers. The first process
        of the axis has the values that stay. Return how far copies were apart; None if all were equal, bit for bit.
        """
        return self._state.repair_copies() if self.updates else None

    def counters(self) -> dict[str, Any]:
        """Return the engine's state that is not in tensors, for `resume`."""
        scaler = vars(self.zero.loss_scaler)
        return {"updates": self.updates, "loss_scaler": {k: scaler[k] for k in SCALER_STATE if k in scaler}}

    def resume(self, counters: dict[str, Any]) -> None:
        """Continue from `counters`, and allocate the optimizer's state, which `load` overwrites."""
        self.updates = counters["updates"]
        vars(self.zero.loss_scaler).update(counters.get("loss_scaler", {}))
        self._state.allocate(self.updates)

    def load(self, state: dict[str, Tensor]) -> None:
        """Overwrite masters, working weights and moments by a state with the names and shapes of `state()`."""
        forget_copies(self.model.parameters())
        self._state.load(state)

    def averaged(self) -> AbstractContextManager[None]:
        """Let the model compute with the moving average, if there is one. A collective."""
        return self._state.averaged() if self.ema and self.updates else nullcontext()

    def _reduce_in_float64(self) -> None:
        """Accumulate and reduce gradients in float64, for which DeepSpeed has no setting (contract-tested)."""
        self.zero.gradient_accumulation_dtype = torch.float64
        self.zero.use_separate_grad_accum = self.zero.use_grad_accum_attribute = False
        self.zero.communication_data_type = torch.float64
        self.zero.ipg_buckets = {torch.float64: type(next(iter(self.zero.ipg_buckets.values())))()}
