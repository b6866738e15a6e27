#include "quanta/ops/pad.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/resample.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/indexing/gradient.h"
#include "quanta/ops/shape/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

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

Tensor pad_constant(const Tensor& x, const Dims& pad, const Dims& sizes, double value) {
  const Tensor result = detail::empty_with_parameters_of(x, sizes, format_of(x));
  if (result.numel() == 0) return result;
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
  return result;
}

// The input position behind each output position.
std::vector<std::int64_t> source_table(std::int64_t size, std::int64_t before, std::int64_t output,
                                       PadMode mode) {
  std::vector<std::int64_t> table(static_cast<std::size_t>(output));
  for (std::int64_t o = 0; o < output; ++o) {
    std::int64_t source = o - before;
    switch (mode) {
      case PadMode::Reflect:
        if (source < 0) source = -source;
        if (source >= size) source = 2 * (size - 1) - source;
        break;
      case PadMode::Circular:
        source = (source + size) % size;
        break;
      case PadMode::Constant:
      case PadMode::Replicate:
        source = math::clamp<std::int64_t>(source, 0, size - 1);
        break;
    }
    table[static_cast<std::size_t>(o)] = source;
  }
  return table;
}

Tensor pad_from_input(const Tensor& input, const Dims& pad, const Dims& sizes, PadMode mode) {
  const std::size_t spatial = pad.size() / 2;
  const bool unbatched = input.sizes().size() == spatial + 1;
  const Tensor x = unbatched ? input.unsqueeze(0) : input;
  const MemoryFormat format = x.suggested_format();
  Dims out_sizes = sizes;
  if (unbatched) out_sizes.insert(0, 1);

  cpu::ResampleGeometry geometry;
  geometry.batch = x.sizes()[0];
  geometry.channels = x.sizes()[1];
  geometry.channels_last = format == MemoryFormat::ChannelsLast;
  cpu::GatherTables tables;
  for (std::size_t slot = 0; slot < 3; ++slot) tables[slot] = {0};
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::size_t slot = 3 - spatial + d;
    const std::int64_t before = pad[2 * (spatial - 1 - d)];
    const std::int64_t after = pad[2 * (spatial - 1 - d) + 1];
    const std::int64_t size = x.sizes()[d + 2];
    QUANTA_CHECK(size > 0, "{}: x: expected spatial sizes > 0, got {}", kOp, input.sizes());
    const std::int64_t most = std::max(before, after);
    QUANTA_CHECK(mode != PadMode::Reflect || most < size,
                 "{}: pad: expected less than the size {} for Reflect, got {}", kOp, size, pad);
    QUANTA_CHECK(mode != PadMode::Circular || most <= size,
                 "{}: pad: expected at most the size {} for Circular, got {}", kOp, size, pad);
    geometry.input[slot] = size;
    geometry.output[slot] = out_sizes[d + 2];
    tables[slot] = source_table(size, before, out_sizes[d + 2], mode);
  }
  const Tensor dense = x.contiguous(format);
  const Tensor result = detail::empty_with_parameters_of(x, out_sizes, format);
  if (result.numel() != 0) {
    cpu::gather_spatial(geometry, tables, item_size(x.dtype()), dense.data_ptr(),
                        result.data_ptr());
  }
  return unbatched ? result.squeeze(0) : result;
}

}  // namespace

Tensor pad(const Tensor& x, const Dims& pad, PadMode mode, double value) {
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& t) { return quanta::pad(t, pad, mode, value); }, x);
  }
  OpScope scope(kOp);
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
    const std::size_t spatial = pad.size() / 2;
    QUANTA_CHECK(value == 0.0, "{}: value: expected 0 for this mode, got {}", kOp, value);
    QUANTA_CHECK(spatial >= 1 && spatial <= 3 &&
                     (x.sizes().size() == spatial + 1 || x.sizes().size() == spatial + 2),
                 "{}: x: expected {} or {} dimensions for this mode and pad {}, got {}", kOp,
                 spatial + 1, spatial + 2, pad, x.sizes());
  }
  const Dims sizes = padded_sizes(x, pad);
  if (mode == PadMode::Constant) {
    scope.kernel("fill+copy");
    const Tensor y = pad_constant(detail::off_tape(x), pad, sizes, value);
    return autograd::needs_grad(x) ? gradients::record_constant_pad(x, pad, y) : y;
  }
  scope.kernel("gather");
  const Tensor y = pad_from_input(detail::off_tape(x), pad, sizes, mode);
  if (!autograd::needs_grad(x)) return y;
  const Tensor positions = pad_from_input(gradients::positions_of(x.sizes()), pad, sizes, mode);
  return gradients::record_taken(kOp, x, y, positions);
}

}  // namespace quanta
