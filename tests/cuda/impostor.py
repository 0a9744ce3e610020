"""An impostor of CUDA: tensors that report the device cuda:0 and compute on the CPU, through torch's own autograd.

`install` changes a process for good, so only processes of their own call it (`tests.cuda.process`). Importing changes
nothing. Inside `Impostor`, operations on these tensors run, are checked for what CUDA refuses, and are counted.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from tests.cuda.attention import FUSED, scaled_dot_product_attention
from tests.cuda.counting import PINNED, Counts

CUDA = torch.device("cuda", 0)
INSTALLED = "is_impostor"  # attribute of torch.cuda in a process that has the impostor
COPIES = {"aten::_to_copy", "aten::copy_"}
INDEXED = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}  # indices may be on the CPU
SHAPES = {"aten::resize_", "aten::set_", "aten::t_", "aten::transpose_", "aten::squeeze_", "aten::unsqueeze_"}
# products of 16-bit matrices with a float32 result, which no CPU kernel computes
ONLY_CUDA = {
    torch.ops.aten.mm.dtype: lambda a, b, dtype: torch.mm(a.to(dtype), b.to(dtype)),
    torch.ops.aten.bmm.dtype: lambda a, b, dtype: torch.bmm(a.to(dtype), b.to(dtype)),
}


class CudaTensor(Tensor):
    """A tensor that says cuda:0. host: the tensor that computes, on the CPU or on torch's meta device."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> "CudaTensor":
        with torch.inference_mode(mode=False):  # a view of a parameter may not become an inference tensor
            self = torch.Tensor._make_wrapper_subclass(
                cls,
                host.shape,
                strides=host.stride(),
                storage_offset=host.storage_offset(),
                dtype=host.dtype,
                device=CUDA,
            )
        self.host = host
        return self

    def __init__(self, host: Tensor) -> None:
        pass

    def __repr__(self) -> str:  # type: ignore[override]
        return f"CudaTensor({self.dtype}, {tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {}, Impostor.current())

    __torch_function__ = torch._C._disabled_torch_function_impl

    # what reads a tensor's memory, or makes one, below the level of operations
    def tolist(self) -> Any:
        return self.cpu().tolist()

    def new_tensor(self, data: Any, **options: Any) -> Tensor:
        return torch.tensor(data, **{"dtype": self.dtype, "device": CUDA, **options})

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(_as_tensor(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_as_tensor(index), value)

    @property
    def data(self) -> Tensor:
        return DATA.__get__(self)

    @data.setter
    def data(self, value: "CudaTensor") -> None:
        self.host = value.host
        DATA.__set__(self, value)


DATA: Any = Tensor.data


def _as_tensor(index: Any) -> Any:
    return torch.tensor(index, dtype=torch.long) if isinstance(index, list) else index


class Impostor(TorchDispatchMode):
    """A context in which new tensors may be made on cuda:0.

    counts: gets what the operations in this context cost.
    host: where tensors compute; the meta device computes shapes alone, for sizes that no CPU holds.
    """

    _entered: ClassVar[list["Impostor"]] = []

    def __init__(self, counts: Counts | None = None, host: str = "cpu") -> None:
        super().__init__()
        self.counts, self.host = counts or Counts(), torch.device(host)

    @classmethod
    def current(cls) -> "Impostor":
        return cls._entered[-1]

    def __enter__(self) -> "Impostor":
        self._entered.append(self)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._entered.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {}, self)

    def model(self, model: nn.Module) -> nn.Module:
        """Move a module of the CPU to cuda:0, in place. Parameters that it shares stay shared."""
        moved: dict[int, nn.Parameter] = {}
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and id(parameter) not in moved:
                    moved[id(parameter)] = nn.Parameter(CudaTensor(parameter.detach().to(self.host)))
                if parameter is not None:
                    module._parameters[name] = moved[id(parameter)]
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = CudaTensor(buffer.to(self.host))
        for name, parameter in list(vars(model).items()):
            assert not isinstance(parameter, Tensor), f"{name} is a tensor and no parameter"
        return model


def on_cpu(tensor: Tensor) -> Tensor:
    """Return the values of a tensor, uncounted."""
    return tensor.host if isinstance(tensor, CudaTensor) else tensor.cpu()


def cuda_device() -> AbstractContextManager[Any]:
    """Return a context in which cuda:0 is the impostor, or in a process without it the real device."""
    return Impostor() if getattr(torch.cuda, INSTALLED, False) else nullcontext()


def compute(func: Any, args: Any, kwargs: Any, impostor: Impostor) -> Any:
    """Run one operation on the tensors' hosts, and give its results as CUDA would. Raises what CUDA refuses."""
    name = func._schema.name
    tensors = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    cuda = [t for t in tensors if isinstance(t, CudaTensor)]
    device = kwargs.get("device")
    target = None if device is None else torch.device(device).type
    if not cuda and target != "cuda":
        return func(*args, **kwargs)
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        with impostor:
            result = func.decompose(*args, **kwargs)  # under inference_mode they come whole
        if result is not NotImplemented:
            return result
    check(name, args, kwargs, cuda, [t for t in tensors if not isinstance(t, CudaTensor)])

    def host_of(value: Any) -> Any:
        if isinstance(value, CudaTensor):
            return value.host
        return impostor.host if isinstance(value, torch.device) and value.type == "cuda" else value

    host_args, host_kwargs = tree_map(host_of, (args, kwargs))
    if name in COPIES and target == "cuda":
        host_kwargs["device"] = impostor.host
    run = ONLY_CUDA.get(func, func)
    result = run(*host_args, **host_kwargs)
    impostor.counts.add(func, args, kwargs, result)
    if name == "aten::_to_copy" and target == "cpu":
        return result
    written = written_arguments(func, args, kwargs)
    if written and len(func._schema.returns) == len(written):
        return written[0] if len(written) == 1 else tuple(written)
    return tree_map(lambda value: CudaTensor(value) if isinstance(value, Tensor) else value, result)


def check(name: str, args: Any, kwargs: Any, cuda: list[Tensor], cpu: list[Tensor]) -> None:
    """Raise RuntimeError if CUDA would not run this operation."""
    if name in SHAPES:
        raise RuntimeError(f"{name}: the impostor does not follow changes of a tensor's shape in place")
    if any(isinstance(value, torch.Generator) and value.device.type == "cpu" for value in (*args, *kwargs.values())):
        raise RuntimeError(f"{name}: expected a generator of cuda, got one of the CPU")
    if name in COPIES or not cuda:
        return
    misplaced = [tuple(t.shape) for t in cpu if t.dim()]
    if name in INDEXED:
        values = args[2:3] if name != "aten::index" else ()
        misplaced = [tuple(t.shape) for t in (args[0], *values) if not isinstance(t, CudaTensor) and t.dim()]
    if misplaced:
        raise RuntimeError(f"{name}: expected all tensors on cuda:0, got tensors {misplaced} on the CPU")


def written_arguments(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the arguments that the operation writes to and returns."""
    schema, written = func._schema, []
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            inside = index < len(args) and not argument.kwarg_only
            written.append(args[index] if inside else kwargs.get(argument.name))
    returned = [r.alias_info is not None and r.alias_info.is_write for r in schema.returns]
    return written if returned and all(returned) else []


def install() -> None:
    """Make this process take cuda:0 for a device, after `load_guard`. It cannot be undone."""
    cuda: Any = torch.cuda
    setattr(cuda, INSTALLED, True)
    cuda._initialized, cuda.default_generators = True, (torch.default_generator,)
    cuda._lazy_init = lambda: None
    cuda._exchange_device = cuda._maybe_exchange_device = lambda device: 0
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.set_device = lambda device: None
    cuda.get_device_capability = lambda device=None: (9, 0)
    cuda.is_bf16_supported = lambda including_emulation=True: True
    cuda.get_rng_state = lambda device="cuda": torch.get_rng_state()
    cuda.set_rng_state = lambda state, device="cuda": torch.set_rng_state(state)
    cuda.synchronize = lambda device=None: Impostor.current().counts.wait("synchronize")
    make: Any = torch.tensor

    def tensor(data: Any, **options: Any) -> Tensor:
        """Make a tensor on the CPU and move it, as torch.tensor does below the level of operations."""
        device = options.pop("device", None)
        cpu_tensor: Tensor = make(data, **options)
        return cpu_tensor if device is None else cpu_tensor.to(device)

    def pinned(self: Tensor) -> Tensor:
        """Return a copy that is marked as pinned."""
        copy = self.clone()
        setattr(copy, PINNED, True)
        return copy

    functions: Any = F
    plain = F.scaled_dot_product_attention

    def attention(query: Tensor, *args: Any, **options: Any) -> Tensor:
        chosen = scaled_dot_product_attention if isinstance(query, CudaTensor) and query.dtype in FUSED else plain
        heads: Tensor = chosen(query, *args, **options)
        return heads

    plain_to = nn.Module.to

    def to(module: nn.Module, *args: Any, **options: Any) -> nn.Module:
        """Move a module with new parameters if their class changes, which PyTorch does not expect of a device."""
        new = not any(isinstance(parameter, CudaTensor) for parameter in module.parameters())
        torch.__future__.set_overwrite_module_params_on_conversion(new)
        try:
            return plain_to(module, *args, **options)
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(False)

    modules: Any = nn.Module
    modules.to = to
    memory: Any = Tensor
    memory.pin_memory = pinned
    replaced: Any = torch
    replaced.tensor, functions.scaled_dot_product_attention = tensor, attention
