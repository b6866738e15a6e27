#include "quanta/ops/pad.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/resample.h"
#include "quanta/ops/cuda/gather.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/scatter.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/resample_math.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace {

constexpr std::string_view kOp = "pad";

MemoryFormat format_of(const Tensor& x) {
  return x.dim() >= 3 && x.dim() <= 5 ? x.suggested_format() : MemoryFormat::Contiguous;
}

// Sizes after padding, checked.
Dims padded_sizes(const Tensor& x, const Dims& pad) {
  Dims sizes = x.sizes();
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    constexpr std::int64_t kLimit = std::int64_t{1} << 40;
    const std::int64_t before = pad[2 * i];
    const std::int64_t after = pad[2 * i + 1];
    QUANTA_CHECK(std::max(before, after) <= kLimit && std::min(before, after) >= -kLimit,
                 "{}: pad: expected numbers within +-{}, got {}", kOp, kLimit, pad);
    std::int64_t& size = sizes[sizes.size() - 1 - i];
    // Cutting more than there is, before the other side adds, would leave nothing to place.
    QUANTA_CHECK(size + std::min<std::int64_t>(before, 0) + std::min<std::int64_t>(after, 0) >= 0 &&
                     size + before + after >= 0,
                 "{}: pad: expected at most the size cut off {}, got {}", kOp, x.sizes(), pad);
    size += before + after;
  }
  checked_numel(sizes);
  return sizes;
}

void pad_constant(const Tensor& x, const Dims& pad, double value, const Tensor& result) {
  result.fill_(value);
  Tensor source = x;
  Tensor target = result;
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    const std::int64_t d = x.dim() - 1 - static_cast<std::int64_t>(i);
    const std::int64_t before = pad[2 * i];
    const std::int64_t after = pad[2 * i + 1];
    const std::int64_t cut = std::max<std::int64_t>(0, -before);
    const std::int64_t kept = x.size(d) - cut - std::max<std::int64_t>(0, -after);
    source = source.narrow(d, cut, kept);
    target = target.narrow(d, std::max<std::int64_t>(0, before), kept);
  }
  target.copy_(source);
}

math::SourceRule rule_of(PadMode mode) {
  switch (mode) {
    case PadMode::Reflect:
      return math::SourceRule::Reflect;
    case PadMode::Circular:
      return math::SourceRule::Circular;
    case PadMode::Replicate:
      return math::SourceRule::Replicate;
    case PadMode::Constant:
      break;
  }
  return math::SourceRule::Shifted;
}

// The input position behind each output position.
std::vector<std::int64_t> source_table(const math::SourceAxis& axis) {
  std::vector<std::int64_t> table(static_cast<std::size_t>(axis.output));
  for (std::int64_t o = 0; o < axis.output; ++o) {
    table[static_cast<std::size_t>(o)] = math::source_of(axis, o);
  }
  return table;
}

// How the elements of `input` go into a result of `out` sizes.
struct Gather {
  cpu::ResampleGeometry geometry;
  cpu::GatherTables tables;

  Gather(const Tensor& input, const Dims& pad, const Dims& out, PadMode mode) {
    const std::size_t spatial = pad.size() / 2;
    const std::size_t added = input.sizes().size() == spatial + 1 ? 1 : 0;  // no batch dimension
    geometry.batch = added == 1 ? 1 : input.sizes()[0];
    geometry.channels = input.sizes()[1 - added];
    geometry.channels_last = format_of(input) == MemoryFormat::ChannelsLast && added == 0;
    for (std::size_t slot = 0; slot < 3; ++slot) tables[slot] = {0};
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::size_t slot = 3 - spatial + d;
      const std::int64_t before = pad[2 * (spatial - 1 - d)];
      geometry.input[slot] = input.sizes()[d + 2 - added];
      geometry.output[slot] = out[d + 2 - added];
      tables[slot] = source_table({.rule = rule_of(mode),
                                   .input = geometry.input[slot],
                                   .output = geometry.output[slot],
                                   .before = before});
    }
  }
};

void check_mode(const Tensor& x, const Dims& pad, PadMode mode) {
  const std::size_t spatial = pad.size() / 2;
  QUANTA_CHECK(spatial >= 1 && spatial <= 3 &&
                   (x.sizes().size() == spatial + 1 || x.sizes().size() == spatial + 2),
               "{}: x: expected {} or {} dimensions for this mode and pad {}, got {}", kOp,
               spatial + 1, spatial + 2, pad, x.sizes());
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t size = x.sizes()[x.sizes().size() - 1 - i];
    const std::int64_t most = std::max(pad[2 * i], pad[2 * i + 1]);
    QUANTA_CHECK(size > 0, "{}: x: expected spatial sizes > 0, got {}", kOp, x.sizes());
    QUANTA_CHECK(mode != PadMode::Reflect || most < size,
                 "{}: pad: expected less than the size {} for Reflect, got {}", kOp, size, pad);
    QUANTA_CHECK(mode != PadMode::Circular || most <= size,
                 "{}: pad: expected at most the size {} for Circular, got {}", kOp, size, pad);
  }
}

}  // namespace

std::span<const std::string_view> enumerators(PadMode) {
  static constexpr std::array<std::string_view, 4> kNames{"constant", "reflect", "replicate",
                                                          "circular"};
  return kNames;
}

namespace {

struct Pad final : Op<Pad> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{1};
  Dims pad;
  PadMode mode = PadMode::Constant;
  double value = 0.0;

  Pad() = default;
  Pad(const Dims& numbers, PadMode how, double with) : pad(numbers), mode(how), value(with) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", kOp);
    QUANTA_SUPPORTED(!is_sub_byte(x.dtype()), "{}: x: expected a whole-byte dtype, got {}", kOp,
                     x.dtype());
    QUANTA_SUPPORTED(!x.is_quantized() || !is_per_channel(x.impl()->quantizer.scheme),
                     "{}: x: expected a tensor quantized per tensor, got {}", kOp,
                     x.impl()->quantizer.scheme);
    QUANTA_CHECK(pad.size() % 2 == 0 && pad.size() / 2 <= x.sizes().size(),
                 "{}: pad: expected two numbers for each of at most {} dimensions, got {}", kOp,
                 x.dim(), pad);
    if (mode != PadMode::Constant) {
      QUANTA_CHECK(value == 0.0, "{}: value: expected 0 for this mode, got {}", kOp, value);
      check_mode(x, pad, mode);
    }
    MemoryFormat format = format_of(x);
    if (mode != PadMode::Constant) {
      if (x.sizes().size() == pad.size() / 2 + 1) format = MemoryFormat::Contiguous;
      out.arrange(0, format);
    }
    out.add_like(x, padded_sizes(x, pad), format);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    if (mode == PadMode::Constant) {
      pad_constant(x.detach(), pad, value, out[0]);
      return "fill+copy";
    }
    const Gather gather(x, pad, out[0].sizes(), mode);
    cpu::gather_spatial(gather.geometry, gather.tables, item_size(x.dtype()), x.data_ptr(),
                        out[0].data_ptr());
    return "gather";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const std::size_t rank = x.sizes().size();
    std::array<cuda::GatherAxis, Dims::kMaxDims> axes;
    for (std::size_t d = 0; d < rank; ++d) axes[d] = cuda::kept_axis(x.sizes()[d], x.strides()[d]);
    for (std::size_t i = 0; i < pad.size() / 2; ++i) {
      math::SourceAxis& source = axes[rank - 1 - i].source;
      source.rule = rule_of(mode);
      source.output = out[0].sizes()[rank - 1 - i];
      source.before = pad[2 * i];
    }
    const std::uint64_t other = mode == PadMode::Constant ? cuda::bits_of(x, value) : 0;
    cuda::gather(x, std::span(axes).first(rank), out[0], other);
    return "gather_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Dims& sizes = context.input_sizes(0);
    if (mode == PadMode::Constant) {
      Dims back = pad;
      for (std::int64_t& number : back) number = -number;
      return {quanta::pad(context.grad(), back)};
    }
    const Tensor positions =
        quanta::pad(detail::positions_of(sizes, context.grad().device()), pad, mode);
    return {detail::scatter_add(context.grad(), positions, sizes)};
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Pad, &Pad::pad>("pad"),
                                       attribute<Pad, &Pad::mode>("mode"),
                                       attribute<Pad, &Pad::value>("value")};
    return kTable;
  }
};

}  // namespace

Tensor pad(const Tensor& x, const Dims& pad, PadMode mode, double value) {
  const Pad operation{pad, mode, value};
  const bool unbatched = mode != PadMode::Constant && x.defined() && pad.size() >= 2 &&
                         pad.size() <= 6 && x.sizes().size() == pad.size() / 2 + 1;
  // With a batch dimension it has a memory order to keep.
  return unbatched ? run(operation, x.unsqueeze(0)).squeeze(0) : run(operation, x);
}

void detail::add_pad(Catalogue& catalogue) {
  catalogue.add({.name = kOp, .header = "quanta/ops/pad.h", .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(Pad{{1, 2, 0, 1}, PadMode::Reflect, 0.0},
                                     {sample_tensor({2, 3, 4, 5}, dtype)});
                });
}

}  // namespace quanta
