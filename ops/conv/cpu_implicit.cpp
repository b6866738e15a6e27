#include "quanta/ops/conv/cpu_implicit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "quanta/ops/cpu/features.h"
#include "quanta/ops/cpu/gemm/int8_kernel.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/upcoming_memory.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

/// Whether the taps of a kernel's line are neighbours in the image, one run of codes.
bool joins_columns(const ConvShape& shape) {
  return shape.stride[2] == 1 && (shape.dilation[2] == 1 || shape.kernel[2] == 1);
}

std::int64_t run_codes(const ConvShape& shape) {
  return joins_columns(shape) ? shape.kernel[2] * shape.in_channels : shape.in_channels;
}

std::int64_t run_count(const ConvShape& shape) {
  return shape.kernel[0] * shape.kernel[1] * (joins_columns(shape) ? 1 : shape.kernel[2]);
}

/// Whether tiles are used: not where most of their codes would be filled up.
bool fills_tiles(const ConvShape& shape) {
  const std::int64_t run = run_codes(shape);
  return features().tiles && 10 * run >= 6 * round_up(run, kTileBytes);
}

/// At most what one output line's copy takes. Strides, paddings and dilations may be far beyond the
/// input.
double line_copy_bytes(const ConvShape& shape) {
  const auto channels = static_cast<double>(shape.in_channels);
  double line = channels * static_cast<double>(shape.out[2]);
  double lines = static_cast<double>(shape.kernel[0]);
  for (int dim = 1; dim < 3; ++dim) {
    const double reach =
        static_cast<double>(shape.kernel[dim] - 1) * static_cast<double>(shape.dilation[dim]);
    const auto phases = static_cast<double>(std::min(shape.stride[dim], shape.kernel[dim]));
    if (dim == 1) lines *= phases * (reach / static_cast<double>(shape.stride[dim]) + 1.0);
    if (dim == 2)
      line = phases * (line + channels * reach / static_cast<double>(shape.stride[dim]));
  }
  return line * lines;
}

/// Output lines that share a copy of `line_bytes` each.
std::int64_t lines_of_band(std::int64_t line_bytes, std::int64_t above, std::int64_t lines) {
  constexpr std::int64_t kBandBytes = std::int64_t{256} * 1024;
  return std::clamp<std::int64_t>(kBandBytes / line_bytes - above, 1,
                                  std::max<std::int64_t>(lines, 1));
}

}  // namespace

bool prefers_implicit(const ConvShape& shape) {
  constexpr std::int64_t kFewChannels = 16;
  const std::int64_t channels = shape.in_channels;
  if (shape.transposed || shape.groups != 1 || channels < kFewChannels || channels % 4 != 0 ||
      !has_gemm_codes(channels) || running_code() < Code::Avx512) {
    return false;
  }
  // Threads share lines or channels, not the pixels of a line.
  const std::int64_t threads = get_num_threads();
  const std::int64_t lines = shape.batch * shape.out[0] * shape.out[1];
  const std::int64_t pairs = ceil_div(shape.out_channels, std::int64_t{32});
  constexpr double kMaxLineBytes = 1 << 20;
  return (lines >= 2 * threads || pairs >= threads) && line_copy_bytes(shape) <= kMaxLineBytes;
}

CodePanels pack_implicit_panels(const std::int8_t* weight, const ConvShape& shape,
                                detail::PackedForms& forms) {
  const std::int64_t run = run_codes(shape);
  const std::int64_t depth = round_up(run, fills_tiles(shape) ? kTileBytes : kPanelDepth);
  const std::int64_t row = run_count(shape) * depth;
  const std::int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const std::int64_t of_run = run / shape.in_channels;
  const auto make_rows = [&] {
    std::vector<std::int8_t> rows(static_cast<std::size_t>(shape.out_channels * row));
    for (std::int64_t o = 0; o < shape.out_channels; ++o) {
      for (std::int64_t c = 0; c < shape.in_channels; ++c) {
        const std::int8_t* from = weight + (o * shape.in_channels + c) * taps;
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          const std::int64_t to =
              o * row + tap / of_run * depth + tap % of_run * shape.in_channels + c;
          rows[static_cast<std::size_t>(to)] = from[tap];
        }
      }
    }
    return rows;
  };
  const std::string order = fmt::format("of {} taps of {} channels in runs of {}, {} bytes each",
                                        taps, shape.in_channels, of_run, depth);
  CodePanels panels = pack_code_panels(make_rows, shape.out_channels, row, {&forms, order});
  panels.tiles = fills_tiles(shape);
  return panels;
}

ImplicitRows::ImplicitRows(const ConvShape& shape)
    : planes_(shape.kernel[0]), run_(run_codes(shape)) {
  struct Tap {
    std::size_t phase;
    std::int64_t plane, line, column;
  };
  std::vector<Tap> taps;
  std::int64_t right = 0;
  const std::int64_t columns = joins_columns(shape) ? 1 : shape.kernel[2];
  for (std::int64_t k = 0; k < run_count(shape); ++k) {
    const std::int64_t y = k / columns % shape.kernel[1] * shape.dilation[1];
    const std::int64_t x = k % columns * shape.dilation[2];
    const Phase phase{y % shape.stride[1], x % shape.stride[2], 0};
    const auto known = std::find_if(phases_.begin(), phases_.end(), [&](const Phase& other) {
      return other.line == phase.line && other.column == phase.column;
    });
    const auto index = static_cast<std::size_t>(known - phases_.begin());
    if (known == phases_.end()) phases_.push_back(phase);
    phases_[index].last = std::max(phases_[index].last, y / shape.stride[1]);
    right = std::max(right, x / shape.stride[2]);
    taps.push_back(
        {index, k / columns / shape.kernel[1], y / shape.stride[1], x / shape.stride[2]});
  }
  if (joins_columns(shape)) right = shape.kernel[2] - 1;
  pitch_ = shape.out[2] + right;

  const std::int64_t line_bytes = pitch_ * shape.in_channels;
  std::int64_t above = 0;
  for (const Phase& phase : phases_) above = std::max(above, phase.last);
  lines_ = lines_of_band(line_bytes * planes_ * static_cast<std::int64_t>(phases_.size()), above,
                         shape.out[1]);
  for (Phase& phase : phases_) {
    phase.begin = plane_bytes_;
    plane_bytes_ += (lines_ + phase.last) * line_bytes;
  }
  for (const Tap& tap : taps) {
    offsets_.push_back(tap.plane * plane_bytes_ + phases_[tap.phase].begin +
                       (tap.line * pitch_ + tap.column) * shape.in_channels);
  }
}

void ImplicitRows::copy_line(const ConvShape& shape, const std::uint8_t* src,
                             std::int32_t src_zero_point, std::int64_t column,
                             std::uint8_t* dst) const {
  const std::int64_t channels = shape.in_channels;
  const std::int64_t stride = shape.stride[2];
  const std::int64_t first = column - shape.padding[2];
  // Pixels [begin, end) of the copy are pixels of the line.
  const std::int64_t begin =
      std::clamp<std::int64_t>(ceil_div(std::max<std::int64_t>(-first, 0), stride), 0, pitch_);
  const std::int64_t inside = shape.in[2] - first;
  const std::int64_t end =
      src == nullptr || inside <= 0 ? begin : std::clamp(ceil_div(inside, stride), begin, pitch_);
  const auto bytes = [&](std::int64_t pixels) {
    return static_cast<std::size_t>(pixels * channels);
  };
  std::memset(dst, src_zero_point, bytes(begin));
  if (end > begin) {
    const std::uint8_t* from = src + (first + begin * stride) * channels;
    if (stride == 1) {
      std::memcpy(dst + begin * channels, from, bytes(end - begin));
    } else {
      for (std::int64_t x = begin; x < end; ++x, from += stride * channels) {
        std::memcpy(dst + x * channels, from, bytes(1));
      }
    }
  }
  std::memset(dst + end * channels, src_zero_point, bytes(pitch_ - end));
}

void ImplicitRows::copy(const ConvShape& shape, const std::uint8_t* src,
                        std::int32_t src_zero_point, std::int64_t plane, std::int64_t line,
                        std::int64_t lines, std::uint8_t* dst) const {
  const std::int64_t line_bytes = pitch_ * shape.in_channels;
  const std::int64_t image = plane / shape.out[0];
  for (std::int64_t k = 0; k < planes_; ++k) {
    const std::int64_t z =
        plane % shape.out[0] * shape.stride[0] - shape.padding[0] + k * shape.dilation[0];
    const bool has_plane = z >= 0 && z < shape.in[0];
    for (const Phase& phase : phases_) {
      for (std::int64_t l = 0; l < lines + phase.last; ++l) {
        const std::int64_t y = (line + l) * shape.stride[1] + phase.line - shape.padding[1];
        const bool is_there = has_plane && y >= 0 && y < shape.in[1];
        const std::int64_t from = (image * shape.in[0] + z) * shape.in[1] + y;
        copy_line(shape, is_there ? src + from * shape.in[2] * shape.in_channels : nullptr,
                  src_zero_point, phase.column,
                  dst + k * plane_bytes_ + phase.begin + l * line_bytes);
      }
    }
  }
}

CodeRows ImplicitRows::rows(const ConvShape& shape, const std::uint8_t* copy,
                            std::int64_t lines) const {
  return {.src = copy,
          .count = shape.out[2],
          .stride = shape.in_channels,
          .lines = lines,
          .line_stride = pitch_ * shape.in_channels,
          .offsets = offsets_,
          .run = run_,
          .beyond = kBeyond};
}

namespace {

/// Output lines that share a copy, numbered over all images and planes.
struct Band {
  std::int64_t index, lines;
};

/// How many bands are multiplied with some panels before the next ones. A weight that the L2 cache
/// does not hold comes from further away for each: small images, which late layers have, take it
/// together.
std::int64_t bands_together(const CodePanels& weight, const ImplicitRows& rows,
                            std::int64_t panels) {
  constexpr std::int64_t kCopies = std::int64_t{1152} * 1024;
  constexpr std::int64_t kMost = 16;
  if (stays_in_cache(weight, panels)) return 1;
  return std::clamp<std::int64_t>(kCopies / rows.bytes(), 1, kMost);
}

/// Panels that stay in the L2 cache, beside the copies, while the bands pass.
std::int64_t panels_together(const CodePanels& weight) {
  constexpr std::int64_t kWeight = std::int64_t{512} * 1024;
  return std::max<std::int64_t>(kWeight / weight.panel_bytes() / 2, 1) * 2;
}

/// Output lines [begin, end) of all images and planes, and a range of panels.
void convolve(const ConvCodesCall& call, const ImplicitRows& rows,
              std::span<const std::byte> upcoming, std::int64_t begin, std::int64_t end,
              std::int64_t panel_begin, std::int64_t panel_end) {
  thread_local AlignedVector<std::uint8_t> copies;
  const ConvShape& shape = call.shape;
  const std::int64_t together = bands_together(call.weight, rows, panel_end - panel_begin);
  const std::int64_t bytes = round_up(rows.bytes(), kTileBytes);
  grow_bytes(copies, together * bytes);
  const std::int64_t panels =
      together == 1 ? panel_end - panel_begin : panels_together(call.weight);
  MemoryAhead ahead =
      memory_ahead(upcoming, call.weight, (end - begin) * shape.out[2], panel_end - panel_begin);
  std::vector<Band> bands;
  for (std::int64_t index = begin; index < end;) {
    bands.clear();
    while (index < end && static_cast<std::int64_t>(bands.size()) < together) {
      const std::int64_t line = index % shape.out[1];
      const Band band{index, std::min({rows.lines(), shape.out[1] - line, end - index})};
      rows.copy(shape, call.src, call.src_zero_point, index / shape.out[1], line, band.lines,
                copies.data() + static_cast<std::int64_t>(bands.size()) * bytes);
      bands.push_back(band);
      index += band.lines;
    }
    for (std::int64_t panel = panel_begin; panel < panel_end; panel += panels) {
      const std::uint8_t* copy = copies.data();
      for (const Band& band : bands) {
        gemm_codes(call.product(rows.rows(shape, copy, band.lines), band.index, ahead), panel,
                   std::min(panel + panels, panel_end));
        copy += bytes;
      }
    }
  }
}

}  // namespace

void conv_implicit_u8(const ConvCodesCall& call, const ImplicitRows& rows, int threads) {
  const ConvShape& shape = call.shape;
  const std::int64_t lines = shape.batch * shape.out[0] * shape.out[1];
  const std::int64_t panels = call.weight.panels();
  if (lines * shape.out[2] * shape.out_channels == 0) return;
  const std::span<const std::byte> upcoming = detail::upcoming_memory();
  if (threads <= 1) return convolve(call, rows, upcoming, 0, lines, 0, panels);
  // Lines for each thread, or panels where there are few lines.
  constexpr std::int64_t kRows = 128;
  if (lines / threads * shape.out[2] >= kRows || panels < 2 * threads) {
    parallel_for(lines, ceil_div(lines, threads), [&](std::int64_t begin, std::int64_t end) {
      convolve(call, rows, upcoming, begin, end, 0, panels);
    });
    return;
  }
  const std::int64_t pairs = panels / 2;
  parallel_for(pairs, ceil_div(pairs, threads), [&](std::int64_t begin, std::int64_t end) {
    convolve(call, rows, upcoming, 0, lines, 2 * begin, 2 * end);
  });
}

}  // namespace quanta::cpu
