#include "quanta/ops/cpu/gemm/panels.h"

#include <algorithm>
#include <cstring>

#include "quanta/ops/cpu/features.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/lasting_memory.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

/// `row(n)` is where the codes of channel n are, null for zeros.
template <typename Row>
CodePanels pack(std::int64_t out_features, std::int64_t in_features, std::int64_t together,
                const Row& row) {
  CodePanels result;
  result.out_features = out_features;
  result.in_features = in_features;
  result.together = together;
  result.tiles = features().tiles;
  const std::int64_t unit = result.tiles ? kTileBytes : kPanelDepth;
  result.depth = round_up(in_features, unit);
  const auto bytes = static_cast<std::size_t>(result.panels() * result.panel_bytes());
  const std::shared_ptr<std::byte> memory = detail::lasting_memory(bytes);
  auto* data = reinterpret_cast<std::int8_t*>(memory.get());
  result.memory = memory;
  // A part takes a few hundredths of a millisecond.
  constexpr std::int64_t kGrainBytes = std::int64_t{256} * 1024;
  const std::int64_t grain = kGrainBytes / std::max<std::int64_t>(result.panel_bytes(), 1) + 1;
  const std::int64_t whole = in_features / kPanelDepth * kPanelDepth;
  const auto rest = static_cast<std::size_t>(in_features - whole);
  std::memset(data, 0, bytes);
  parallel_for(result.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = std::min(end * kPanelChannels, out_features);
    for (std::int64_t n = begin * kPanelChannels; n < last; ++n) {
      const std::int8_t* src = row(n);
      if (src == nullptr) continue;
      std::int8_t* dst =
          data + result.panel_offset(n / kPanelChannels) + n % kPanelChannels * kPanelDepth;
      for (std::int64_t k = 0; k < whole; k += kPanelDepth, dst += result.group_bytes()) {
        std::memcpy(dst, src + k, kPanelDepth);
      }
      if (rest > 0) std::memcpy(dst, src + whole, rest);
    }
  });
  return result;
}

}  // namespace

CodePanels pack_code_panels(const std::int8_t* weight, std::int64_t out_features,
                            std::int64_t in_features) {
  return pack(out_features, in_features, 1,
              [=](std::int64_t n) { return weight + n * in_features; });
}

CodePanels pack_code_panels(const std::int8_t* weight, std::span<const std::int64_t> rows,
                            std::int64_t in_features, std::int64_t together) {
  return pack(static_cast<std::int64_t>(rows.size()), in_features, together,
              [=](std::int64_t n) -> const std::int8_t* {
                const std::int64_t row = rows[static_cast<std::size_t>(n)];
                return row < 0 ? nullptr : weight + row * in_features;
              });
}

}  // namespace quanta::cpu
