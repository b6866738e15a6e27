#include "quanta/ops/conv/cpu_line_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "quanta/ops/cpu/features.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cpu {
namespace {

// Steps are copied by so many bytes, of which the rest is written again.
constexpr std::int64_t kCopy = 8;

/// What an output column moves on by in one line.
std::int64_t step_bytes(const ConvShape& shape) { return shape.stride[2] * shape.in_channels; }

/// Steps that a kernel sees of a line, the last of them perhaps in part.
std::int64_t kernel_steps(const ConvShape& shape) {
  return ceil_div(shape.kernel[2], shape.stride[2]);
}

std::int64_t kernel_pairs(const ConvShape& shape) {
  return ceil_div(shape.kernel[1], std::int64_t{2});
}

std::int64_t run_bytes(const ConvShape& shape) {
  return 2 * kernel_steps(shape) * step_bytes(shape);
}

/// Pairs of woven lines of an image, one behind the other.
class WovenLines {
 public:
  explicit WovenLines(const ConvCodesCall& call)
      : call_(call),
        shape_(call.shape),
        columns_((shape_.out[2] - 1 + kernel_steps(shape_)) * shape_.stride[2]),
        pair_bytes_(2 * columns_ * shape_.in_channels) {}

  std::int64_t pair_bytes() const { return pair_bytes_; }

  /// Pairs [first, first + count) of an image.
  void fill(std::int64_t image, std::int64_t first, std::int64_t count,
            AlignedVector<std::uint8_t>& memory) {
    thread_local AlignedVector<std::uint8_t> lines;
    const std::int64_t line_bytes = pair_bytes_ / 2;
    grow_bytes(lines, 2 * (line_bytes + kCopy));
    grow_bytes(memory, count * pair_bytes_ + kBeyond);
    std::uint8_t* const upper = lines.data();
    std::uint8_t* const lower = upper + line_bytes + kCopy;
    std::uint8_t* to = memory.data();
    for (std::int64_t pair = first; pair < first + count; ++pair, to += pair_bytes_) {
      bordered_line(call_, image, 2 * pair, columns_, upper);
      bordered_line(call_, image, 2 * pair + 1, columns_, lower);
      weave(upper, lower, to);
    }
  }

  static constexpr std::int64_t kBeyond = 64 + kCopy;

 private:
  void weave(const std::uint8_t* upper, const std::uint8_t* lower, std::uint8_t* to) const {
    const std::int64_t step = step_bytes(shape_);
    const std::int64_t line_bytes = pair_bytes_ / 2;
    for (std::int64_t at = 0; at < line_bytes; at += step) {
      std::memcpy(to + 2 * at, upper + at, kCopy);
      std::memcpy(to + 2 * at + step, lower + at, kCopy);
    }
  }

  const ConvCodesCall& call_;
  const ConvShape& shape_;
  std::int64_t columns_, pair_bytes_;
};

}  // namespace

bool fits_line_pairs(const ConvShape& shape) {
  const bool fits = shape.kernel[0] == 1 && shape.stride[0] == 1 && shape.padding[0] == 0 &&
                    shape.stride[1] == 2 && shape.dilation[1] == 1 && shape.dilation[2] == 1 &&
                    shape.stride[2] <= kCopy && step_bytes(shape) <= kCopy &&
                    shape.kernel[1] <= kTileBytes && shape.kernel[2] <= kTileBytes;
  if (!fits || run_bytes(shape) > kTileBytes) return false;
  // A pair fills a step of the tiles: at most half as many again as rows without gaps take.
  const std::int64_t dense =
      ceil_div(shape.kernel[1] * shape.kernel[2] * shape.in_channels, kTileBytes);
  return dense > 1 && 2 * kernel_pairs(shape) <= 3 * dense;
}

CodePanels pack_line_pair_panels(const std::int8_t* weight, const ConvShape& shape,
                                 detail::PackedForms& forms) {
  const std::int64_t channels = shape.in_channels;
  const std::int64_t taps = shape.kernel[1] * shape.kernel[2];
  const std::int64_t step = step_bytes(shape);
  const std::int64_t row = kernel_pairs(shape) * kTileBytes;
  const auto make_rows = [&] {
    std::vector<std::int8_t> rows(static_cast<std::size_t>(shape.out_channels * row));
    for (std::int64_t o = 0; o < shape.out_channels; ++o) {
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          const std::int64_t y = tap / shape.kernel[2];
          const std::int64_t byte = tap % shape.kernel[2] * channels + c;
          const std::int64_t to =
              o * row + y / 2 * kTileBytes + byte / step * 2 * step + y % 2 * step + byte % step;
          rows[static_cast<std::size_t>(to)] = weight[(o * channels + c) * taps + tap];
        }
      }
    }
    return rows;
  };
  const std::string order =
      fmt::format("of pairs of lines, {} by {} taps of {} channels, steps of {} bytes",
                  shape.kernel[1], shape.kernel[2], channels, step);
  CodePanels panels = pack_code_panels(make_rows, shape.out_channels, row, {&forms, order});
  panels.tiles = true;
  return panels;
}

void convolve_line_pairs(const ConvCodesCall& call, std::span<const std::byte> upcoming,
                         std::int64_t begin, std::int64_t end) {
  thread_local AlignedVector<std::uint8_t> memory;
  const ConvShape& shape = call.shape;
  WovenLines woven(call);
  // Lines that share their pairs in the L1 cache.
  constexpr std::int64_t kBytes = 16384;
  const std::int64_t pairs = kernel_pairs(shape);
  const std::int64_t together = std::max<std::int64_t>(kBytes / woven.pair_bytes() - pairs + 1, 1);
  std::vector<std::int64_t> offsets;
  for (std::int64_t pair = 0; pair < pairs; ++pair) offsets.push_back(pair * woven.pair_bytes());
  MemoryAhead ahead =
      memory_ahead(upcoming, call.weight, (end - begin) * shape.out[2], call.weight.panels());
  for (std::int64_t line = begin; line < end;) {
    const std::int64_t height = line % shape.out[1];
    const std::int64_t lines = std::min({together, shape.out[1] - height, end - line});
    woven.fill(line / shape.out[1], height, lines + pairs - 1, memory);
    const CodeRows rows{.src = memory.data(),
                        .count = shape.out[2],
                        .stride = 2 * step_bytes(shape),
                        .lines = lines,
                        .line_stride = woven.pair_bytes(),
                        .offsets = offsets,
                        .run = run_bytes(shape),
                        .beyond = WovenLines::kBeyond};
    gemm_codes(call.product(rows, line, ahead), 0, call.weight.panels());
    line += lines;
  }
}

}  // namespace quanta::cpu
