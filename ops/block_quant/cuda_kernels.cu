#include "quanta/ops/block_quant/cuda_kernels.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

// A NaN on either side stays.
SIMT_DEVICE float greater(float a, float b) { return b > a || b != b ? b : a; }

// Sixteen threads share a block of elements, the size of NVFP4's blocks.
struct QuantizeBlocks {
  static constexpr const char* kName = "quantize_blocks";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  static constexpr int kOfBlock = 16;
  using Params = BlockQuantParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t wanted = simt::global_thread() / kOfBlock;
    // Threads behind the last block look at it once more.
    const std::int64_t index = wanted < p.count ? wanted : p.count - 1;
    const std::int64_t row = index / p.blocks;
    const std::int64_t start = (index - row * p.blocks) * p.block;
    const std::int64_t left = p.length - start;
    const std::int64_t count = left < p.block ? left : p.block;
    const std::int64_t first = row * p.length + start;
    const int lane = simt::thread() % kOfBlock;
    float amax = 0.0F;
    for (std::int64_t i = lane; i < count; i += kOfBlock) {
      amax = greater(amax, fabsf(p.src[first + i]));
    }
    for (int mask = kOfBlock / 2; mask > 0; mask /= 2) {
      amax = greater(amax, simt::shuffle_xor(amax, mask));
    }
    if (wanted >= p.count) return;
    const math::BlockScale scale = math::block_scale(amax, p.format);
    for (std::int64_t i = lane; i < count; i += kOfBlock) {
      const float steps =
          math::round_block_element(p.src[first + i] * scale.scale, p.format.element);
      p.dst[first + i] = steps * scale.unscale;
    }
    if (lane == 0) p.unscales[index] = scale.unscale;
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void quantize_blocks(Device device, const BlockQuantParams& params) {
  constexpr int kOfThreads = QuantizeBlocks::kThreads / QuantizeBlocks::kOfBlock;
  simt::launch<QuantizeBlocks>(device, simt::grid_for(params.count, kOfThreads), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
