#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/vision.h"
#include "quanta/ops/vision/families.h"
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

constexpr std::size_t at(std::int64_t d) { return static_cast<std::size_t>(d); }

/// Up to four weighted elements along a dimension.
template <typename T>
struct Taps {
  int count = 0;
  std::array<std::int64_t, 4> index{};
  std::array<T, 4> weight{};

  void add(std::int64_t i, T w) {
    index[static_cast<std::size_t>(count)] = i;
    weight[static_cast<std::size_t>(count)] = w;
    ++count;
  }
};

/// How positions along one dimension of x are read.
template <typename T>
struct Line {
  std::int64_t length;
  GridSampleOptions options;

  T position_of(T coordinate) const {
    const auto size = static_cast<T>(length);
    return options.align_corners ? (coordinate + T{1}) / T{2} * (size - T{1})
                                 : ((coordinate + T{1}) * size - T{1}) / T{2};
  }

  /// Into what x has, but for Zeros. What is not finite goes to the border.
  T placed(T position) const {
    const auto last = static_cast<T>(length - 1);
    if (options.padding == GridPadding::Zeros) return position;
    if (options.padding == GridPadding::Reflection && std::isfinite(position)) {
      const T low = options.align_corners ? T{0} : T(-0.5);
      const T span = options.align_corners ? last : static_cast<T>(length);
      if (span == T{0}) return T{0};
      const T distance = std::fabs(position - low);
      const T rest = std::fmod(distance, span);
      const bool turned = std::fmod(std::floor(distance / span), T{2}) != T{0};
      position = low + (turned ? span - rest : rest);
    }
    return position > T{0} ? std::min(position, last) : T{0};
  }

  void add(Taps<T>& taps, T position, T weight) const {
    // Not inside: NaN too.
    if (!(position >= T{0} && position <= static_cast<T>(length - 1))) return;
    taps.add(static_cast<std::int64_t>(position), weight);
  }

  Taps<T> taps(T coordinate) const {
    Taps<T> result;
    const T raw = position_of(coordinate);
    if (options.mode == GridMode::Cubic) {
      const T base = std::floor(raw);
      const T t = raw - base;
      constexpr T kA = T(-0.75);
      const auto near = [](T d) { return ((kA + T{2}) * d - (kA + T{3})) * d * d + T{1}; };
      const auto far = [](T d) { return ((kA * d - T{5} * kA) * d + T{8} * kA) * d - T{4} * kA; };
      const std::array<T, 4> weights{far(t + T{1}), near(t), near(T{1} - t), far(T{2} - t)};
      for (int k = 0; k < 4; ++k) {
        add(result, placed(base + static_cast<T>(k - 1)), weights[static_cast<std::size_t>(k)]);
      }
      return result;
    }
    const T position = placed(raw);
    if (options.mode == GridMode::Nearest) {
      add(result, std::nearbyint(position), T{1});
      return result;
    }
    const T base = std::floor(position);
    const T t = position - base;
    add(result, base, T{1} - t);
    if (t > T{0}) add(result, base + T{1}, t);
    return result;
  }
};

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
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      sample(in[0], static_cast<const T*>(in[0].data_ptr()),
             static_cast<const T*>(in[1].data_ptr()), out[0], static_cast<T*>(out[0].data_ptr()));
    });
    return "taps";
  }

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
  template <typename T>
  void sample(const Tensor& x, const T* src, const T* grid, const Tensor& out, T* dst) const {
    const std::size_t spatial = x.sizes().size() - 2;
    // The depth is 1 where there is none.
    std::array<std::int64_t, 3> lengths{1, 1, 1};
    for (std::size_t d = 0; d < spatial; ++d) lengths[3 - spatial + d] = x.sizes()[2 + d];
    const std::int64_t plane = lengths[0] * lengths[1] * lengths[2];
    const std::int64_t channels = x.sizes()[1];
    const std::int64_t points = product(out.sizes()) / (x.sizes()[0] * channels);
    const std::int64_t grain =
        std::max<std::int64_t>(1, 2048 / std::max<std::int64_t>(1, channels));
    parallel_for(x.sizes()[0] * points, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        std::array<Taps<T>, 3> taps;
        taps[0].add(0, T{1});
        for (std::size_t d = 0; d < spatial; ++d) {
          const std::size_t slot = 3 - spatial + d;
          // The grid names the innermost dimension first.
          const T coordinate = grid[at(item) * spatial + (spatial - 1 - d)];
          taps[slot] = Line<T>{lengths[slot], options}.taps(coordinate);
        }
        const std::int64_t image = item / points;
        const T* from = src + image * channels * plane;
        T* to = dst + image * channels * points + item % points;
        for (std::int64_t c = 0; c < channels; ++c) {
          to[c * points] = sum(taps, lengths, from + c * plane);
        }
      }
    });
  }

  template <typename T>
  static T sum(const std::array<Taps<T>, 3>& taps, const std::array<std::int64_t, 3>& lengths,
               const T* from) {
    T total{};
    for (int i = 0; i < taps[0].count; ++i) {
      for (int j = 0; j < taps[1].count; ++j) {
        const auto a = static_cast<std::size_t>(i);
        const auto b = static_cast<std::size_t>(j);
        const T* row = from + (taps[0].index[a] * lengths[1] + taps[1].index[b]) * lengths[2];
        T line{};
        for (int k = 0; k < taps[2].count; ++k) {
          const auto c = static_cast<std::size_t>(k);
          line += taps[2].weight[c] * row[taps[2].index[c]];
        }
        total += taps[0].weight[a] * taps[1].weight[b] * line;
      }
    }
    return total;
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
      fill(static_cast<const T*>(in[0].data_ptr()), static_cast<T*>(out[0].data_ptr()));
    });
    return "scalar";
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<AffineGrid, &AffineGrid::size>("size"),
        attribute<AffineGrid, &AffineGrid::align_corners>("align_corners")};
    return kTable;
  }

 private:
  template <typename T>
  T coordinate(std::int64_t i, std::int64_t length) const {
    const auto position = static_cast<T>(i);
    if (!align_corners) return (T{2} * position + T{1}) / static_cast<T>(length) - T{1};
    return length > 1 ? T{2} * position / static_cast<T>(length - 1) - T{1} : T{0};
  }

  template <typename T>
  void fill(const T* theta, T* to) const {
    const std::size_t spatial = size.size() - 2;
    std::int64_t points = 1;
    for (std::size_t d = 2; d < size.size(); ++d) points *= size[d];
    parallel_for(size[0] * points, 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        std::array<T, 4> place{};  // x, y, (z,) 1
        std::int64_t rest = item % points;
        for (std::size_t d = 0; d < spatial; ++d) {
          const std::int64_t length = size[size.size() - 1 - d];
          place[d] = coordinate<T>(rest % length, length);
          rest /= length;
        }
        place[spatial] = T{1};
        const T* row = theta + at(item / points) * spatial * (spatial + 1);
        for (std::size_t d = 0; d < spatial; ++d) {
          T sum{};
          for (std::size_t k = 0; k <= spatial; ++k) sum += *row++ * place[k];
          to[at(item) * spatial + d] = sum;
        }
      }
    });
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
