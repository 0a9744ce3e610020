// What a build of PyTorch for CPUs lacks before tensors may report a CUDA device: a guard of the current device, for
// autograd's threads, and the hooks by which PyTorch asks for CUDA. One device, one stream, no kernels.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

const Device kOnly(DeviceType::CUDA, 0);
int event_of_all;

struct OnlyDevice final : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device exchangeDevice(Device) const override { return kOnly; }
  Device getDevice() const override { return kOnly; }
  Stream getStream(Device) const noexcept override { return stream(); }
  Stream getDefaultStream(Device) const override { return stream(); }
  Stream getNewStream(Device, int) const override { return stream(); }
  Stream exchangeStream(Stream) const noexcept override { return stream(); }
  // everything before an event has run when it is recorded
  void record(void** event, const Stream&, const DeviceIndex, const c10::EventFlag) const override {
    *event = &event_of_all;
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}

  static Stream stream() { return Stream(Stream::DEFAULT, kOnly); }
};

c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, new OnlyDevice());

struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  bool isPinnedPtr(const void*) const override { return false; }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
};

} // namespace

namespace at {
using at::CUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks) // PyTorch asks by this name
} // namespace at
