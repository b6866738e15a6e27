#include <algorithm>
#include <array>
#include <string_view>

#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/vision.h"
#include "quanta/ops/vision/cuda_kernels.h"
#include "quanta/ops/vision/families.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace vision {
namespace {

struct Fold final : Op<Fold> {
  static constexpr std::string_view kName = "fold";
  static constexpr ArgumentCount kArguments{1};
  FoldOptions options;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    require_tensor(kName, "x", x, {DType::Float32, DType::Float64});
    const std::size_t rank = options.image_size.size();
    QUANTA_CHECK(rank >= 1 && rank + 2 <= Dims::kMaxDims,
                 "{}: image_size: expected 1..{} numbers, got {}", kName, Dims::kMaxDims - 2, rank);
    const auto check = [&](std::string_view name, const Dims& values, std::int64_t least,
                           std::size_t count) {
      constexpr std::int64_t kMost = std::int64_t{1} << 31;
      QUANTA_CHECK(values.size() == count, "{}: {}: expected {} numbers, got {}", kName, name,
                   count, values);
      for (const std::int64_t value : values) {
        QUANTA_CHECK(value >= least && value <= kMost, "{}: {}: expected {}..{}, got {}", kName,
                     name, least, kMost, values);
      }
    };
    check("image_size", options.image_size, 0, rank);
    check("block_size", options.block_size, 1, rank);
    if (!options.dilation.empty()) check("dilation", options.dilation, 1, rank);
    if (!options.stride.empty()) check("stride", options.stride, 1, rank);
    // Two numbers a dimension: Dims holds ten.
    if (!options.padding.empty()) check("padding", options.padding, 0, 2 * rank);
    const std::int64_t block = checked_numel(options.block_size);
    const std::int64_t places = checked_numel(places_of());
    QUANTA_CHECK(x.dim() == 3 && x.size(1) % block == 0 && x.size(2) == places,
                 "{}: x: expected [N, C * {}, {}], got {}", kName, block, places, x.sizes());
    Dims sizes{x.size(0), x.size(1) / block};
    for (const std::int64_t size : options.image_size) sizes.push_back(size);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(sizes, x.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto* src = static_cast<const T*>(in[0].data_ptr());
      auto* dst = static_cast<T*>(out[0].data_ptr());
      const std::int64_t planes = out[0].sizes()[0] * out[0].sizes()[1];
      const std::int64_t image = out[0].numel() / planes;
      const std::int64_t columns = in[0].numel() / planes;
      parallel_for(planes, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t p = begin; p < end; ++p) {
          std::fill_n(dst + p * image, image, T{});
          add_blocks(src + p * columns, dst + p * image);
        }
      });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::FoldParams p;
    p.is_double = in[0].dtype() == DType::Float64;
    p.rank = static_cast<int>(options.image_size.size());
    p.planes = out[0].sizes()[0] * out[0].sizes()[1];
    const Dims places = places_of();
    for (std::size_t d = 0; d < options.image_size.size(); ++d) {
      p.image[d] = options.image_size[d];
      p.block[d] = options.block_size[d];
      p.dilation[d] = dilation(d);
      p.before[d] = before(d);
      p.stride[d] = stride(d);
      p.places[d] = places[d];
    }
    p.image_count = product(options.image_size);
    p.block_count = product(options.block_size);
    p.place_count = product(places);
    p.x = in[0].device_ptr();
    p.out = out[0].device_ptr();
    cuda::fold_blocks(out[0].device(), p);
    return "fold_blocks";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = Fold;
    using Options = FoldOptions;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &Options::image_size>("image_size"),
        attribute<Self, &Self::options, &Options::block_size>("block_size"),
        attribute<Self, &Self::options, &Options::dilation>("dilation"),
        attribute<Self, &Self::options, &Options::padding>("padding"),
        attribute<Self, &Self::options, &Options::stride>("stride")};
    return kTable;
  }

 private:
  std::int64_t stride(std::size_t d) const {
    return options.stride.empty() ? 1 : options.stride[d];
  }
  std::int64_t dilation(std::size_t d) const {
    return options.dilation.empty() ? 1 : options.dilation[d];
  }
  std::int64_t before(std::size_t d) const {
    return options.padding.empty() ? 0 : options.padding[d];
  }

  /// How many blocks there are along each dimension.
  Dims places_of() const {
    const std::size_t rank = options.image_size.size();
    Dims places;
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t after = options.padding.empty() ? 0 : options.padding[rank + d];
      const std::int64_t room =
          options.image_size[d] + before(d) + after - dilation(d) * (options.block_size[d] - 1) - 1;
      QUANTA_CHECK(room >= 0, "{}: image_size: expected room for a block of {}, got {}", kName,
                   options.block_size, options.image_size);
      places.push_back(room / stride(d) + 1);
    }
    return places;
  }

  /// All of one channel: [block, places] into the image.
  template <typename T>
  void add_blocks(const T* from, T* to) const {
    const std::size_t rank = options.image_size.size();
    const Dims places = places_of();
    const std::int64_t block = product(options.block_size);
    const std::int64_t count = product(places);
    for (std::int64_t b = 0; b < block; ++b) {
      for (std::int64_t l = 0; l < count; ++l) {
        const T value = *from++;
        std::int64_t target = 0;
        std::int64_t step = 1;
        std::int64_t in_block = b;
        std::int64_t place = l;
        bool inside = true;
        for (std::size_t d = rank; d-- > 0 && inside;) {
          const std::int64_t position = place % places[d] * stride(d) +
                                        in_block % options.block_size[d] * dilation(d) - before(d);
          inside = position >= 0 && position < options.image_size[d];
          target += position * step;
          step *= options.image_size[d];
          place /= places[d];
          in_block /= options.block_size[d];
        }
        if (inside) to[target] += value;
      }
    }
  }
};

}  // namespace

void add_fold(Catalogue& catalogue) {
  catalogue.add({.name = Fold::kName, .header = "quanta/ops/vision.h", .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  Fold operation;
                  operation.options = {.image_size = {4, 5}, .block_size = {2, 2}};
                  return sample_call(operation, {sample_tensor({2, 8, 12}, dtype)});
                });
}

}  // namespace vision

Tensor fold(const Tensor& x, const FoldOptions& options) {
  vision::Fold operation;
  operation.options = options;
  return run(operation, x);
}

}  // namespace quanta
