#include <algorithm>
#include <array>
#include <string_view>

#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/vision.h"
#include "quanta/ops/vision/cuda_kernels.h"
#include "quanta/ops/vision/families.h"
#include "quanta/ops/vision/sampling.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {

std::span<const std::string_view> enumerators(GridMode) {
  static constexpr std::array<std::string_view, 3> kNames{"linear", "nearest", "cubic"};
  return kNames;
}
std::span<const std::string_view> enumerators(GridPadding) {
  static constexpr std::array<std::string_view, 3> kNames{"zeros", "border", "reflection"};
  return kNames;
}

namespace vision {
namespace {

SampleRule::Mode mode_of(GridMode mode) {
  switch (mode) {
    case GridMode::Linear:
      return SampleRule::Mode::Linear;
    case GridMode::Nearest:
      return SampleRule::Mode::Nearest;
    case GridMode::Cubic:
      return SampleRule::Mode::Cubic;
  }
  return {};
}
SampleRule::Padding padding_of(GridPadding padding) {
  switch (padding) {
    case GridPadding::Zeros:
      return SampleRule::Padding::Zeros;
    case GridPadding::Border:
      return SampleRule::Padding::Border;
    case GridPadding::Reflection:
      return SampleRule::Padding::Reflection;
  }
  return {};
}
SampleRule rule_of(const GridSampleOptions& options) {
  return {mode_of(options.mode), padding_of(options.padding), options.align_corners};
}

struct GridSample final : Op<GridSample> {
  static constexpr std::string_view kName = "grid_sample";
  static constexpr ArgumentCount kArguments{2};
  GridSampleOptions options;

  GridSample() = default;
  explicit GridSample(const GridSampleOptions& given) : options(given) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    const Tensor& grid = in[1];
    require_tensor(kName, "x", x, {DType::Float32, DType::Float64});
    require_tensor(kName, "grid", grid, {x.dtype()});
    QUANTA_CHECK(x.dim() == 4 || x.dim() == 5, "{}: x: expected 4 or 5 dimensions, got {}", kName,
                 x.sizes());
    QUANTA_CHECK(grid.dim() == x.dim() && grid.size(0) == x.size(0) && grid.size(-1) == x.dim() - 2,
                 "{}: grid: expected [{}, ..., {}] with {} dimensions, got {}", kName, x.size(0),
                 x.dim() - 2, x.dim(), grid.sizes());
    Dims sizes = x.sizes();
    for (std::size_t d = 2; d < sizes.size(); ++d) {
      QUANTA_CHECK(sizes[d] > 0, "{}: x: expected spatial sizes > 0, got {}", kName, x.sizes());
      sizes[d] = grid.sizes()[d - 1];
    }
    out.arrange(0, MemoryFormat::Contiguous);
    out.arrange(1, MemoryFormat::Contiguous);
    out.add(sizes, x.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const cuda::GridSampleParams p = params(in, out[0]);
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      options.mode == GridMode::Cubic ? sample<T, 4>(p, in, out[0]) : sample<T, 2>(p, in, out[0]);
    });
    return "taps";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::GridSampleParams p = params(in, out[0]);
    p.x = in[0].device_ptr();
    p.grid = in[1].device_ptr();
    p.out = out[0].device_ptr();
    cuda::sample_grid(out[0].device(), p);
    return "sample_grid";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = GridSample;
    using Options = GridSampleOptions;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &Options::mode>("mode"),
        attribute<Self, &Self::options, &Options::padding>("padding"),
        attribute<Self, &Self::options, &Options::align_corners>("align_corners")};
    return kTable;
  }

 private:
  /// All but where the elements lie.
  cuda::GridSampleParams params(const Arguments& in, const Tensor& out) const {
    const Dims& sizes = in[0].sizes();
    const std::size_t spatial = sizes.size() - 2;
    cuda::GridSampleParams p;
    p.is_double = in[0].dtype() == DType::Float64;
    p.rule = rule_of(options);
    p.images = sizes[0];
    p.channels = sizes[1];
    p.points = out.numel() / (sizes[0] * sizes[1]);
    p.spatial = static_cast<int>(spatial);
    for (std::size_t d = 0; d < spatial; ++d) p.lengths[3 - spatial + d] = sizes[2 + d];
    return p;
  }

  template <typename T, int kTaps>
  static void sample(const cuda::GridSampleParams& p, const Arguments& in, const Tensor& out) {
    const auto* src = static_cast<const T*>(in[0].data_ptr());
    const auto* grid = static_cast<const T*>(in[1].data_ptr());
    auto* dst = static_cast<T*>(out.data_ptr());
    const std::int64_t plane = p.lengths[0] * p.lengths[1] * p.lengths[2];
    const std::int64_t grain =
        std::max<std::int64_t>(1, 2048 / std::max<std::int64_t>(1, p.channels));
    parallel_for(p.images * p.points, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const PlaneTaps<T, kTaps> taps(grid + item * p.spatial, p.spatial, p.lengths, p.rule);
        const std::int64_t image = item / p.points;
        const T* from = src + image * p.channels * plane;
        T* to = dst + image * p.channels * p.points + item % p.points;
        for (std::int64_t c = 0; c < p.channels; ++c) {
          to[c * p.points] = taps.sum(p.lengths, from + c * plane);
        }
      }
    });
  }
};

struct AffineGrid final : Op<AffineGrid> {
  static constexpr std::string_view kName = "affine_grid";
  static constexpr ArgumentCount kArguments{1};
  Dims size;
  bool align_corners = false;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& theta = in[0];
    require_tensor(kName, "theta", theta, {DType::Float32, DType::Float64});
    QUANTA_CHECK(size.size() == 4 || size.size() == 5, "{}: size: expected 4 or 5 numbers, got {}",
                 kName, size);
    const auto spatial = static_cast<std::int64_t>(size.size()) - 2;
    const Dims wanted{size[0], spatial, spatial + 1};
    QUANTA_CHECK(theta.sizes() == wanted, "{}: theta: expected {}, got {}", kName, wanted,
                 theta.sizes());
    Dims sizes{size[0]};
    for (std::size_t d = 2; d < size.size(); ++d) {
      QUANTA_CHECK(size[d] >= 0, "{}: size: expected sizes >= 0, got {}", kName, size);
      sizes.push_back(size[d]);
    }
    sizes.push_back(spatial);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(sizes, theta.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto* theta = static_cast<const T*>(in[0].data_ptr());
      auto* to = static_cast<T*>(out[0].data_ptr());
      const AffineGridShape shape = this->shape();
      const std::int64_t points = this->points();
      parallel_for(size[0] * points, 4096, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t item = begin; item < end; ++item) {
          const std::int64_t image = item / points;
          shape.position(theta + image * shape.spatial * (shape.spatial + 1), item % points,
                         to + item * shape.spatial);
        }
      });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::make_affine_grid(out[0].device(), {.is_double = in[0].dtype() == DType::Float64,
                                             .shape = shape(),
                                             .images = size[0],
                                             .points = points(),
                                             .theta = in[0].device_ptr(),
                                             .out = out[0].device_ptr()});
    return "make_affine_grid";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<AffineGrid, &AffineGrid::size>("size"),
        attribute<AffineGrid, &AffineGrid::align_corners>("align_corners")};
    return kTable;
  }

 private:
  AffineGridShape shape() const {
    AffineGridShape shape;
    shape.spatial = static_cast<int>(size.size()) - 2;
    for (std::size_t d = 2; d < size.size(); ++d) shape.lengths[size.size() - 1 - d] = size[d];
    shape.align_corners = align_corners;
    return shape;
  }
  /// Of an image.
  std::int64_t points() const {
    std::int64_t points = 1;
    for (std::size_t d = 2; d < size.size(); ++d) points *= size[d];
    return points;
  }
};

constexpr std::string_view kHeader = "quanta/ops/vision.h";

}  // namespace
}  // namespace vision

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  return run(vision::GridSample{options}, x, grid);
}
Tensor affine_grid(const Tensor& theta, const Dims& size, bool align_corners) {
  vision::AffineGrid operation;
  operation.size = size;
  operation.align_corners = align_corners;
  return run(operation, theta);
}

void detail::add_vision(Catalogue& catalogue) {
  catalogue.add(
      {.name = vision::GridSample::kName, .header = vision::kHeader, .dtypes = dtypes::kFloats},
      [](DType dtype) {
        return sample_call(vision::GridSample{}, {sample_tensor({2, 3, 4, 5}, dtype),
                                                  sample_tensor({2, 3, 2, 2}, dtype, 2)});
      });
  catalogue.add(
      {.name = vision::AffineGrid::kName, .header = vision::kHeader, .dtypes = dtypes::kFloats},
      [](DType dtype) {
        vision::AffineGrid operation;
        operation.size = {2, 1, 3, 4};
        return sample_call(operation, {sample_tensor({2, 2, 3}, dtype)});
      });
  vision::add_boxes(catalogue);
  vision::add_fold(catalogue);
}

}  // namespace quanta
