#include "quanta/ops/pooling/cuda_mean.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

// A block has 32 channels of an image; each of its warps takes every kWarps-th pixel.
struct MeanOfCodes {
  static constexpr const char* kName = "mean_of_codes";
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kShared = kThreads * 8;
  static constexpr bool kTogether = true;
  using Params = MeanOfCodesParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const std::int64_t image = simt::block_x();
    const int lane = simt::thread() % 32;
    const int warp = simt::thread() / 32;
    const int channel = simt::block_y() * 32 + lane;
    auto* const sums = reinterpret_cast<std::int64_t*>(shared);
    std::int64_t sum = 0;
    if (channel < p.channels) {
      const std::uint8_t* x = p.x + image * p.pixels * p.channels + channel;
      for (std::int64_t i = warp; i < p.pixels; i += kWarps) sum += x[i * p.channels];
    }
    sums[simt::thread()] = sum;
    simt::sync();
    if (warp > 0 || channel >= p.channels) return;
    for (int i = 1; i < kWarps; ++i) sum += sums[i * 32 + lane];
    sum -= p.pixels * p.zero_point;
    p.y[image * p.channels + channel] =
        static_cast<float>(static_cast<double>(sum) * p.scale / static_cast<double>(p.pixels));
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void mean_of_codes(Device device, const MeanOfCodesParams& params) {
  simt::launch<MeanOfCodes>(device, simt::Grid{params.images, (params.channels + 31) / 32, 1},
                            params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
