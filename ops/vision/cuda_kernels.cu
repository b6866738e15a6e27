#include "quanta/ops/vision/cuda_kernels.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

// A thread for each position, which reads the channels one after the other: the taps are made once,
// and neighbours write neighbouring elements. Channels are shared out along y.
template <typename T, int kTaps>
struct SampleGrid {
  static constexpr const char* kName = "sample_grid";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  static constexpr int kMostParts = 1024;
  static constexpr int kEach = 8;  // channels of a thread at least, where there are as many
  using Params = GridSampleParams;

  static QUANTA_HOST_DEVICE int parts(std::int64_t channels) {
    const std::int64_t wanted = (channels + kEach - 1) / kEach;
    return wanted < kMostParts ? static_cast<int>(wanted) : kMostParts;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t item = simt::global_thread();
    if (item >= p.images * p.points) return;
    const vision::PlaneTaps<T, kTaps> taps(static_cast<const T*>(p.grid) + item * p.spatial,
                                           p.spatial, p.lengths, p.rule);
    const std::int64_t plane = p.lengths[0] * p.lengths[1] * p.lengths[2];
    const std::int64_t image = item / p.points;
    const T* const from = static_cast<const T*>(p.x) + image * p.channels * plane;
    T* const to = static_cast<T*>(p.out) + image * p.channels * p.points + item % p.points;
    const int step = parts(p.channels);
    for (std::int64_t c = simt::block_y(); c < p.channels; c += step) {
      to[c * p.points] = taps.sum(p.lengths, from + c * plane);
    }
  }
};

template <typename T>
using SampleLinear = SampleGrid<T, 2>;
template <typename T>
using SampleCubic = SampleGrid<T, 4>;

template <typename T>
struct MakeAffineGrid {
  static constexpr const char* kName = "make_affine_grid";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AffineGridParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t item = simt::global_thread();
    if (item >= p.images * p.points) return;
    const std::int64_t image = item / p.points;
    const int spatial = p.shape.spatial;
    p.shape.position(static_cast<const T*>(p.theta) + image * spatial * (spatial + 1),
                     item % p.points, static_cast<T*>(p.out) + item * spatial);
  }
};

// A thread for each bin of each channel.
template <typename T>
struct AlignRegions {
  static constexpr const char* kName = "align_regions";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = RoiAlignParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    const std::int64_t bins = p.rule.rows * p.rule.columns;
    if (i >= p.regions * p.channels * bins) return;
    const std::int64_t column = i % p.rule.columns;
    const std::int64_t row = i / p.rule.columns % p.rule.rows;
    const std::int64_t channel = i / bins % p.channels;
    const std::int64_t region = i / (bins * p.channels);
    const std::int64_t image = p.is_long ? static_cast<const std::int64_t*>(p.batch)[region]
                                         : static_cast<const std::int32_t*>(p.batch)[region];
    const T* const roi = static_cast<const T*>(p.rois) + 4 * region;
    const vision::Points<T> rows(p.rule, roi[1], roi[3], p.rule.rows);
    const vision::Points<T> columns(p.rule, roi[0], roi[2], p.rule.columns);
    if (image < 0 || image >= p.images || !vision::are_few(rows, columns)) {
      simt::atomic_max(p.fault, 1);
      return;
    }
    const T* const plane =
        static_cast<const T*>(p.x) + (image * p.channels + channel) * p.height * p.width;
    vision::BinSum<T> sum;
    for (std::int64_t y = 0; y < rows.count; ++y) {
      for (std::int64_t x = 0; x < columns.count; ++x) {
        sum.add(vision::corners_at(rows.position(row, y), columns.position(column, x), p.height,
                                   p.width),
                plane);
      }
    }
    static_cast<T*>(p.out)[i] = sum.result(p.rule.takes_maximum, rows.count * columns.count);
  }
};

// A thread for each element of the image, which adds what comes to it: at most one element for each
// place within a block, in the order in which the CPU gets there.
template <typename T>
struct FoldBlocks {
  static constexpr const char* kName = "fold_blocks";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FoldParams;

  /// The block whose element number `in_block` lies at `element` of the image, or -1.
  static SIMT_DEVICE std::int64_t place_of(const Params& p, std::int64_t element,
                                           std::int64_t in_block) {
    std::int64_t place = 0;
    std::int64_t step = 1;
    for (int d = p.rank - 1; d >= 0; --d) {
      const std::int64_t offset =
          element % p.image[d] + p.before[d] - in_block % p.block[d] * p.dilation[d];
      if (offset < 0 || offset % p.stride[d] != 0) return -1;
      const std::int64_t index = offset / p.stride[d];
      if (index >= p.places[d]) return -1;
      place += index * step;
      step *= p.places[d];
      element /= p.image[d];
      in_block /= p.block[d];
    }
    return place;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.planes * p.image_count) return;
    const std::int64_t plane = i / p.image_count;
    const T* const from = static_cast<const T*>(p.x) + plane * p.block_count * p.place_count;
    T sum{};
    for (std::int64_t b = 0; b < p.block_count; ++b) {
      const std::int64_t place = place_of(p, i - plane * p.image_count, b);
      if (place >= 0) sum += from[b * p.place_count + place];
    }
    static_cast<T*>(p.out)[i] = sum;
  }
};

template <template <typename> typename Kernel, typename Params>
void launch_for(Device device, const Params& params, const simt::Grid& grid) {
  params.is_double ? simt::launch<Kernel<double>>(device, grid, params)
                   : simt::launch<Kernel<float>>(device, grid, params);
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void sample_grid(Device device, const GridSampleParams& params) {
  using Kernel = SampleGrid<float, 2>;
  simt::Grid grid = simt::grid_for(params.images * params.points, Kernel::kThreads);
  grid.y = Kernel::parts(params.channels);
  params.rule.mode == vision::SampleRule::Mode::Cubic
      ? launch_for<SampleCubic>(device, params, grid)
      : launch_for<SampleLinear>(device, params, grid);
}
void make_affine_grid(Device device, const AffineGridParams& params) {
  launch_for<MakeAffineGrid>(device, params, simt::grid_for(params.images * params.points));
}
void align_regions(Device device, const RoiAlignParams& params) {
  const std::int64_t count =
      params.regions * params.channels * params.rule.rows * params.rule.columns;
  launch_for<AlignRegions>(device, params, simt::grid_for(count, AlignRegions<float>::kThreads));
}
void fold_blocks(Device device, const FoldParams& params) {
  launch_for<FoldBlocks>(device, params, simt::grid_for(params.planes * params.image_count));
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
