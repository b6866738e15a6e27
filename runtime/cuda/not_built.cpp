// Stands for the CUDA runtime in a build without it.

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/driver.h"

namespace quanta::cuda {

int real_device_count() noexcept { return 0; }

Driver& real_driver(int index) {
  throw BackendError(fmt::format(
      "cuda:{}: expected a build with CUDA, got one without: install CUDA 13 (tools/setup --cuda) "
      "and configure with -DQUANTA_CUDA=ON; cuda:emulated is there to test with",
      index));
}

}  // namespace quanta::cuda
