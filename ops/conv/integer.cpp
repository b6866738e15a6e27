#include <algorithm>
#include <array>
#include <vector>

#include "quanta/ops/conv/families.h"
#include "quanta/ops/conv/geometry.h"
#include "quanta/ops/cpu/gemm/conv_exact.h"
#include "quanta/ops/detail/byte_operands.h"
#include "quanta/ops/detail/cuda_code_product.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/integer.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

// The convolution of plain bytes.

namespace quanta {
namespace conv {
namespace {

using detail::check_byte_zero_point;
using detail::check_bytes;
using detail::turned_bytes;
using detail::zero_points_of_bytes;

constexpr std::array kBytes{DType::UInt8, DType::Int8};

struct ConvInteger final : Op<ConvInteger> {
  static constexpr std::string_view kName = "conv_integer";
  static constexpr ArgumentCount kArguments{4};
  Dims stride{1};
  Dims dilation{1};
  Dims pads;
  std::int64_t groups = 1;

  ConvInteger() = default;
  explicit ConvInteger(const ConvIntegerOptions& options)
      : stride(options.stride),
        dilation(options.dilation),
        pads(options.pads),
        groups(options.groups) {}

  void infer(const Arguments& in, Results& out) const override {
    check_bytes(kName, "x", in[0]);
    check_bytes(kName, "weight", in[1]);
    const detail::ConvGeometry geometry = geometry_of(in);
    check_byte_zero_point(kName, "x_zero_point", in[2], in[0].dtype(), 1);
    check_byte_zero_point(kName, "weight_zero_point", in[3], in[1].dtype(), in[1].size(0));
    const cpu::ConvShape shape = detail::conv_shape(geometry, padded_sizes(in[0]));
    out.arrange(0, MemoryFormat::ChannelsLast);
    out.arrange(1, MemoryFormat::Contiguous);
    out.add(detail::conv_output_sizes(geometry, shape), DType::Int32, MemoryFormat::ChannelsLast);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const detail::ConvGeometry geometry = geometry_of(in);
    const cpu::ConvShape shape = detail::conv_shape(geometry, padded_sizes(in[0]));
    const std::vector<std::int8_t> weight = turned_bytes<std::int8_t>(in[1], true);
    const cpu::ExactWeights packed = cpu::pack_exact_weights(
        weight.data(), zero_points_of_bytes(in[3], in[1].dtype(), true), shape);
    const auto zero =
        static_cast<std::int32_t>(zero_points_of_bytes(in[2], in[0].dtype(), false)[0]);
    const std::vector<std::uint8_t> image = padded(in[0], shape, zero);
    cpu::conv_exact_s32(image.data(), zero, packed, shape,
                        static_cast<std::int32_t*>(out[0].data_ptr()));
    return "exact";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cpu::ConvShape shape = detail::conv_shape(geometry_of(in), padded_sizes(in[0]));
    const std::size_t spatial = in[0].sizes().size() - 2;
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::size_t to = 3 - spatial + d;
      shape.in[to] = in[0].sizes()[d + 2];
      shape.padding[to] = pads.empty() ? 0 : pads[d];
    }
    const auto dense = [](const Tensor& x) { return x.defined() ? x.contiguous() : x; };
    detail::convolve_bytes_on_cuda({in[0], 0, dense(in[2])}, {in[1], 0, dense(in[3])}, shape,
                                   out[0]);
    return "multiply_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kBytes; }
  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return detail::conv_work(in[0], in[1], out[0], false);
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = ConvInteger;
    static constexpr std::array kTable{
        attribute<Self, &Self::stride>("stride"), attribute<Self, &Self::dilation>("dilation"),
        attribute<Self, &Self::pads>("pads"), attribute<Self, &Self::groups>("groups")};
    return kTable;
  }

 private:
  detail::ConvGeometry geometry_of(const Arguments& in) const {
    const std::int64_t spatial = in[0].dim() - 2;
    QUANTA_CHECK(spatial >= 1 && spatial <= 3, "{}: x: expected 3 to 5 dimensions, got sizes {}",
                 kName, in[0].sizes());
    QUANTA_CHECK(pads.empty() || static_cast<std::int64_t>(pads.size()) == 2 * spatial,
                 "{}: pads: expected {} numbers, got {}", kName, 2 * spatial, pads.size());
    for (const std::int64_t pad : pads) {
      QUANTA_CHECK(pad >= 0 && pad <= (std::int64_t{1} << 31),
                   "{}: pads: expected numbers from 0 on, got {}", kName, pad);
    }
    return detail::conv_geometry(in[1], {}, {stride, Dims{0}, Dims{0}, dilation, groups}, spatial,
                                 false);
  }

  Dims padded_sizes(const Tensor& x) const {
    Dims sizes = x.sizes();
    const std::size_t spatial = sizes.size() - 2;
    if (pads.empty()) return sizes;
    for (std::size_t d = 0; d < spatial; ++d) sizes[d + 2] += pads[d] + pads[d + spatial];
    return sizes;
  }

  /// x without sign and with its border, channels-last.
  std::vector<std::uint8_t> padded(const Tensor& x, const cpu::ConvShape& shape,
                                   std::int32_t zero) const {
    const std::vector<std::uint8_t> image = turned_bytes<std::uint8_t>(x, false);
    if (std::ranges::all_of(pads, [](std::int64_t pad) { return pad == 0; })) return image;
    const std::size_t spatial = x.sizes().size() - 2;
    std::array<std::int64_t, 3> own{1, 1, 1};
    std::array<std::int64_t, 3> begin{0, 0, 0};
    for (std::size_t d = 0; d < spatial; ++d) {
      own[3 - spatial + d] = x.sizes()[d + 2];
      begin[3 - spatial + d] = pads[d];
    }
    const std::int64_t channels = shape.in_channels;
    std::vector<std::uint8_t> result(
        static_cast<std::size_t>(shape.batch * shape.in[0] * shape.in[1] * shape.in[2] * channels),
        static_cast<std::uint8_t>(zero));
    const std::uint8_t* from = image.data();
    for (std::int64_t n = 0; n < shape.batch; ++n) {
      for (std::int64_t z = 0; z < own[0]; ++z) {
        for (std::int64_t y = 0; y < own[1]; ++y, from += own[2] * channels) {
          const std::int64_t row = (n * shape.in[0] + z + begin[0]) * shape.in[1] + y + begin[1];
          std::copy_n(from, own[2] * channels,
                      result.data() + (row * shape.in[2] + begin[2]) * channels);
        }
      }
    }
    return result;
  }
};

}  // namespace

void add_integer(Catalogue& catalogue) {
  catalogue.add({.name = ConvInteger::kName, .header = "quanta/ops/integer.h", .dtypes = kBytes},
                [](DType dtype) {
                  return sample_call(ConvInteger({.pads = {1, 0, 0, 1}}),
                                     {sample_tensor({2, 4, 5, 5}, dtype),
                                      sample_tensor({3, 4, 3, 3}, DType::Int8, 2),
                                      Tensor::ones({}, dtype), Tensor::ones({3}, DType::Int8)});
                });
}

}  // namespace conv

Tensor conv_integer(const Tensor& x, const Tensor& weight, const Tensor& x_zero_point,
                    const Tensor& weight_zero_point, const ConvIntegerOptions& options) {
  return run(conv::ConvInteger(options), x, weight, x_zero_point, weight_zero_point);
}

}  // namespace quanta
