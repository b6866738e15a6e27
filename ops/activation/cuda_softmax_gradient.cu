#include "quanta/ops/activation/cuda_softmax_gradient.h"

#include <cmath>

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

/// What element `at` adds to the sum of its line.
SIMT_DEVICE double term_of(const SoftmaxSlopeParams& p, std::int64_t at) {
  const auto gradient = static_cast<double>(float_at(p.dtype, p.gradient, at));
  if (p.kind == SoftmaxKind::LogSoftmax) return gradient;
  return gradient * static_cast<double>(float_at(p.dtype, p.y, at));
}

SIMT_DEVICE void write_slope(const SoftmaxSlopeParams& p, std::int64_t at, float sum) {
  const float gradient = float_at(p.dtype, p.gradient, at);
  const float y = float_at(p.dtype, p.y, at);
  put_float(p.dtype, p.dst, at,
            p.kind == SoftmaxKind::Softmax ? y * (gradient - sum) : gradient - expf(y) * sum);
}

// Lines of neighbours. A warp has 32 of them: it reads along each line, and each of its threads adds
// up one.
struct SlopesOfRows {
  static constexpr const char* kName = "softmax_slopes_of_rows";
  static constexpr int kBlocks = 4;
  static constexpr int kThreads = 128;
  static constexpr int kLines = 32;  // of a warp, and columns of a tile
  static constexpr int kRow = kLines + 1;
  static constexpr int kShared =
      kThreads * (kRow * static_cast<int>(sizeof(double)) + static_cast<int>(sizeof(float)));
  static constexpr bool kTogether = true;
  using Params = SoftmaxSlopeParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const int lane = simt::thread() % kLines;
    const int warp = simt::thread() / kLines;
    double* const tile = reinterpret_cast<double*>(shared) + warp * kLines * kRow;
    float* const sums = reinterpret_cast<float*>(shared + kThreads * kRow * sizeof(double));
    const std::int64_t first =
        static_cast<std::int64_t>(simt::block_x()) * kThreads + warp * kLines;
    const std::int64_t left = p.lines - first;
    const int lines = left < kLines ? static_cast<int>(left < 0 ? 0 : left) : kLines;
    double sum = 0.0;
    for (std::int64_t begin = 0; begin < p.length; begin += kLines) {
      const std::int64_t rest = p.length - begin;
      const int columns = rest < kLines ? static_cast<int>(rest) : kLines;
      for (int line = 0; line < lines; ++line) {
        if (lane < columns) {
          tile[line * kRow + lane] = term_of(p, (first + line) * p.length + begin + lane);
        }
      }
      simt::sync();
      for (int i = 0; lane < lines && i < columns; ++i) sum += tile[lane * kRow + i];
      simt::sync();
    }
    sums[simt::thread()] = static_cast<float>(sum);
    simt::sync();
    for (int line = 0; line < lines; ++line) {
      const float of_line = sums[warp * kLines + line];
      for (std::int64_t i = lane; i < p.length; i += kLines) {
        write_slope(p, (first + line) * p.length + i, of_line);
      }
    }
  }
};

// A thread for each line: neighbours read neighbours.
struct SlopesOfLines {
  static constexpr const char* kName = "softmax_slopes_of_lines";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = SoftmaxSlopeParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t line = simt::global_thread();
    if (line >= p.lines) return;
    const std::int64_t first = line / p.inner * p.length * p.inner + line % p.inner;
    const std::int64_t last = first + p.length * p.inner;
    double sum = 0.0;
    for (std::int64_t i = first; i < last; i += p.inner) sum += term_of(p, i);
    for (std::int64_t i = first; i < last; i += p.inner) {
      write_slope(p, i, static_cast<float>(sum));
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void softmax_slopes(Device device, const SoftmaxSlopeParams& params) {
  const simt::Grid grid = simt::grid_for(params.lines, 128);
  if (params.inner == 1) return simt::launch<SlopesOfRows>(device, grid, params);
  simt::launch<SlopesOfLines>(device, grid, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
