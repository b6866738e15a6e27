#include "quanta/ops/conv/cpu_gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "quanta/ops/conv/cpu_line_pairs.h"
#include "quanta/ops/cpu/features.h"
#include "quanta/ops/cpu/gemm/int8_kernel.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/upcoming_memory.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

// Copies are of whole vectors, whose rest is written again or not looked at.
constexpr std::int64_t kCopy = 16;

/// What of a row comes from one input line: neighbouring columns.
std::int64_t line_bytes(const ConvShape& shape) { return shape.kernel[2] * shape.in_channels; }

std::int64_t kernel_lines(const ConvShape& shape) { return shape.kernel[0] * shape.kernel[1]; }

std::int64_t row_bytes(const ConvShape& shape) {
  return (kernel_lines(shape) * line_bytes(shape) + 3) / 4 * 4;
}

/// The input columns that the outputs of a line see, those in the border too.
std::int64_t seen_columns(const ConvShape& shape) {
  return (shape.out[2] - 1) * shape.stride[2] + shape.kernel[2];
}

/// Whether the convolution has one tap whose channels do not come in fours.
bool is_odd_product(const ConvShape& shape) {
  return kernel_lines(shape) * shape.kernel[2] == 1 && shape.in_channels % kPanelDepth != 0;
}

/// Whether a call of oneDNN costs more than the copy of the rows, and one thread has little to do.
bool is_small(const ConvShape& shape) {
  constexpr std::int64_t kPixels = 256;
  constexpr std::int64_t kProducts = 2'000'000;
  return pixels(shape) <= kPixels && pixels(shape) * shape.in_channels <=
                                         kProducts / std::max<std::int64_t>(shape.out_channels, 1);
}

/// Memory of one thread, kept between calls.
struct Scratch {
  AlignedVector<std::uint8_t> lines, rows;
};

/// Output lines to their rows.
class Gatherer {
 public:
  Gatherer(const ConvCodesCall& call, Scratch& scratch)
      : call_(call), shape_(call.shape), scratch_(scratch) {
    columns_ = seen_columns(shape_);
    line_stride_ = columns_ * shape_.in_channels + 4 * kCopy;
    grow_bytes(scratch_.lines, kernel_lines(shape_) * line_stride_);
  }

  /// Rows of output line `index`.
  void gather(std::int64_t index, std::uint8_t* rows) {
    fill_lines(index);
    const std::int64_t bytes = line_bytes(shape_);
    if (bytes <= kCopy) return copy_rows<1>(rows);
    if (bytes <= 2 * kCopy) return copy_rows<2>(rows);
    copy_rows<0>(rows);
  }

 private:
  /// The input lines under the kernel, with their borders.
  void fill_lines(std::int64_t index) {
    const std::int64_t image = index / (shape_.out[1] * shape_.out[0]);
    const std::int64_t depth = index / shape_.out[1] % shape_.out[0];
    const std::int64_t height = index % shape_.out[1];
    std::uint8_t* to = scratch_.lines.data();
    for (std::int64_t k = 0; k < kernel_lines(shape_); ++k, to += line_stride_) {
      const std::int64_t d =
          depth * shape_.stride[0] - shape_.padding[0] + k / shape_.kernel[1] * shape_.dilation[0];
      const std::int64_t h = height * shape_.stride[1] + k % shape_.kernel[1] * shape_.dilation[1];
      const bool inside = d >= 0 && d < shape_.in[0];
      bordered_line(call_, inside ? image * shape_.in[0] + d : -1, h, columns_, to);
    }
  }

  /// kCopies vectors from each line, or as many as it takes.
  template <int kCopies>
  void copy_rows(std::uint8_t* rows) const {
    const std::int64_t bytes = line_bytes(shape_);
    const std::int64_t copied = kCopies > 0 ? kCopies * kCopy : round_up(bytes, kCopy);
    const std::int64_t step = shape_.stride[2] * shape_.in_channels;
    const std::int64_t stride = row_bytes(shape_);
    const std::int64_t lines = kernel_lines(shape_);
    for (std::int64_t x = 0; x < shape_.out[2]; ++x) {
      const std::uint8_t* from = scratch_.lines.data() + x * step;
      std::uint8_t* to = rows + x * stride;
      for (std::int64_t k = 0; k < lines; ++k) {
        for (std::int64_t i = 0; i < copied; i += kCopy) std::memcpy(to + i, from + i, kCopy);
        from += line_stride_;
        to += bytes;
      }
    }
  }

  const ConvCodesCall& call_;
  const ConvShape& shape_;
  Scratch& scratch_;
  std::int64_t columns_, line_stride_;
};

/// Output lines [begin, end).
void convolve_lines(const ConvCodesCall& call, std::span<const std::byte> upcoming,
                    std::int64_t begin, std::int64_t end) {
  thread_local Scratch scratch;
  const ConvShape& shape = call.shape;
  // Rows of a product: enough to fill tiles, few enough for the L1 cache.
  constexpr std::int64_t kRows = 96;
  const std::int64_t together = std::max<std::int64_t>(kRows / shape.out[2], 1);
  const std::int64_t rows_of_line = shape.out[2] * row_bytes(shape);
  // Vectors reach beyond the last row, tiles further.
  constexpr std::int64_t kBeyond = 256;
  grow_bytes(scratch.rows, together * rows_of_line + line_bytes(shape) + kBeyond);
  Gatherer gatherer(call, scratch);
  MemoryAhead ahead =
      memory_ahead(upcoming, call.weight, (end - begin) * shape.out[2], call.weight.panels());
  for (std::int64_t line = begin; line < end; line += together) {
    const std::int64_t lines = std::min(together, end - line);
    for (std::int64_t i = 0; i < lines; ++i) {
      gatherer.gather(line + i, scratch.rows.data() + i * rows_of_line);
    }
    const std::int64_t rows = lines * shape.out[2];
    CodeRows dense = dense_rows(scratch.rows.data(), rows, row_bytes(shape));
    dense.beyond = kBeyond;
    gemm_codes(call.product(dense, line, ahead), 0, call.weight.panels());
  }
}

}  // namespace

void bordered_line(const ConvCodesCall& call, std::int64_t plane, std::int64_t line,
                   std::int64_t columns, std::uint8_t* to) {
  const ConvShape& shape = call.shape;
  const std::int64_t y = line - shape.padding[1];
  const bool inside = plane >= 0 && y >= 0 && y < shape.in[1];
  const std::int64_t first = -shape.padding[2];
  const std::int64_t left = inside ? std::min(shape.padding[2], columns) : columns;
  const std::int64_t end = inside ? std::clamp(shape.in[2] - first, left, columns) : columns;
  const auto bytes = [&](std::int64_t count) {
    return static_cast<std::size_t>(count * shape.in_channels);
  };
  std::memset(to, call.src_zero_point, bytes(left));
  if (end > left) {
    const std::int64_t from = (plane * shape.in[1] + y) * shape.in[2] + first + left;
    std::memcpy(to + bytes(left), call.src + bytes(from), bytes(end - left));
  }
  std::memset(to + bytes(end), call.src_zero_point, bytes(columns - end));
}

bool gathers_rows(const ConvShape& shape) {
  constexpr std::int64_t kFewChannels = 4;
  return shape.in_channels <= kFewChannels || is_odd_product(shape);
}

bool prefers_gather(const ConvShape& shape) {
  constexpr std::int64_t kMaxDepth = 1024;
  // Strides may be far beyond the input.
  constexpr std::int64_t kMaxLine = 1 << 18;
  if (is_odd_product(shape) && !is_small(shape)) return false;
  return !shape.transposed && shape.groups == 1 && gathers_rows(shape) && shape.dilation[2] == 1 &&
         row_bytes(shape) <= kMaxDepth &&
         seen_columns(shape) <= kMaxLine / std::max<std::int64_t>(shape.in_channels, 1) &&
         has_gemm_codes(row_bytes(shape));
}

CodePanels pack_gathered_panels(const std::int8_t* weight, const ConvShape& shape,
                                detail::PackedForms& forms) {
  if (features().tiles && fits_line_pairs(shape)) {
    return pack_line_pair_panels(weight, shape, forms);
  }
  const std::int64_t taps = kernel_lines(shape) * shape.kernel[2];
  const auto make_rows = [&] {
    std::vector<std::int8_t> rows(static_cast<std::size_t>(shape.out_channels * row_bytes(shape)));
    for (std::int64_t o = 0; o < shape.out_channels; ++o) {
      for (std::int64_t c = 0; c < shape.in_channels; ++c) {
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          const std::int64_t to = o * row_bytes(shape) + tap * shape.in_channels + c;
          rows[static_cast<std::size_t>(to)] = weight[(o * shape.in_channels + c) * taps + tap];
        }
      }
    }
    return rows;
  };
  const std::string order = fmt::format("of {} taps of {} channels", taps, shape.in_channels);
  CodePanels panels =
      pack_code_panels(make_rows, shape.out_channels, row_bytes(shape), {&forms, order});
  // Short rows leave most of a tile empty: measured slower.
  constexpr std::int64_t kTileDepth = 64;
  panels.tiles = panels.tiles && row_bytes(shape) > kTileDepth;
  return panels;
}

void conv_gather_u8(const ConvCodesCall& call, int threads) {
  const ConvShape& shape = call.shape;
  const std::int64_t lines = shape.batch * shape.out[0] * shape.out[1];
  if (lines * shape.out[2] * shape.out_channels == 0) return;
  const std::span<const std::byte> upcoming = detail::upcoming_memory();
  const bool has_pairs = call.weight.tiles && fits_line_pairs(shape);
  const auto convolve = has_pairs ? convolve_line_pairs : convolve_lines;
  if (threads <= 1) return convolve(call, upcoming, 0, lines);
  parallel_for(lines, ceil_div(lines, threads),
               [&](std::int64_t begin, std::int64_t end) { convolve(call, upcoming, begin, end); });
}

}  // namespace quanta::cpu
