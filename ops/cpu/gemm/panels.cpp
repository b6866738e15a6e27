#include "quanta/ops/cpu/gemm/panels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "quanta/ops/cpu/features.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/lasting_memory.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

/// Panels without memory.
CodePanels plan_panels(std::int64_t out_features, std::int64_t in_features, std::int64_t together) {
  CodePanels result;
  result.out_features = out_features;
  result.in_features = in_features;
  result.together = together;
  result.tiles = features().tiles;
  const std::int64_t unit = result.tiles ? kTileBytes : kPanelDepth;
  result.depth = round_up(in_features, unit);
  return result;
}

/// Writes all of the panels to `data`. `row(n)` is where the codes of channel n are, null for zeros.
template <typename Row>
void fill(const CodePanels& panels, std::int8_t* data, const Row& row) {
  const std::int64_t channels = panels.out_features;
  const std::int64_t depth = panels.in_features;
  // A part takes a few hundredths of a millisecond.
  constexpr std::int64_t kGrainBytes = std::int64_t{256} * 1024;
  const std::int64_t run = panels.together * panels.panel_bytes();  // of panels that take turns
  const std::int64_t grain = kGrainBytes / std::max<std::int64_t>(run, 1) + 1;
  const std::int64_t whole = depth / kPanelDepth * kPanelDepth;
  const auto rest = static_cast<std::size_t>(depth - whole);
  const std::int64_t runs = ceil_div(panels.panels(), panels.together);
  // Each thread touches its part first: the system gives out zeroed pages one by one.
  parallel_for(runs, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t first = r * panels.together;
      const std::int64_t last = std::min(first + panels.together, panels.panels());
      const bool is_full = last * kPanelChannels <= channels && depth == panels.depth;
      const auto bytes = static_cast<std::size_t>((last - first) * panels.panel_bytes());
      if (!is_full) std::memset(data + r * run, 0, bytes);
      const std::int64_t stop = std::min(last * kPanelChannels, channels);
      for (std::int64_t n = first * kPanelChannels; n < stop; ++n) {
        const std::int8_t* src = row(n);
        std::int8_t* dst =
            data + panels.panel_offset(n / kPanelChannels) + n % kPanelChannels * kPanelDepth;
        if (src == nullptr) {
          if (!is_full) continue;
          for (std::int64_t k = 0; k < whole; k += kPanelDepth, dst += panels.group_bytes()) {
            std::memset(dst, 0, kPanelDepth);
          }
          continue;
        }
        for (std::int64_t k = 0; k < whole; k += kPanelDepth, dst += panels.group_bytes()) {
          std::memcpy(dst, src + k, kPanelDepth);
        }
        if (rest > 0) std::memcpy(dst, src + whole, rest);
      }
    }
  });
}

/// `make_row()` gives the function `row` of fill.
template <typename MakeRow>
CodePanels pack(CodePanels panels, const PanelForms& forms, const MakeRow& make_row) {
  const auto bytes = static_cast<std::size_t>(panels.panels() * panels.panel_bytes());
  const auto write = [&](std::byte* to) {
    fill(panels, reinterpret_cast<std::int8_t*>(to), make_row());
  };
  if (forms.forms == nullptr) {
    const std::shared_ptr<std::byte> memory = detail::lasting_memory(bytes);
    write(memory.get());
    panels.memory = memory;
    return panels;
  }
  // Another order of the bytes has to have another name: files keep them.
  const std::string layout =
      fmt::format("panels 1, {} x {}, depth {}, together {}, rows {}", panels.out_features,
                  panels.in_features, panels.depth, panels.together, forms.rows);
  panels.memory = forms.forms->get(layout, bytes, write);
  return panels;
}

}  // namespace

CodePanels pack_code_panels(const std::int8_t* weight, std::int64_t out_features,
                            std::int64_t in_features, const PanelForms& forms) {
  return pack(plan_panels(out_features, in_features, 1), forms,
              [=] { return [=](std::int64_t n) { return weight + n * in_features; }; });
}

CodePanels pack_code_panels(const std::function<std::vector<std::int8_t>()>& make_rows,
                            std::int64_t out_features, std::int64_t in_features,
                            const PanelForms& forms) {
  return pack(plan_panels(out_features, in_features, 1), forms, [&] {
    return
        [in_features, rows = make_rows()](std::int64_t n) { return rows.data() + n * in_features; };
  });
}

CodePanels pack_code_panels(const std::int8_t* weight, std::span<const std::int64_t> rows,
                            std::int64_t in_features, std::int64_t together,
                            const PanelForms& forms) {
  const auto out_features = static_cast<std::int64_t>(rows.size());
  return pack(plan_panels(out_features, in_features, together), forms, [=] {
    return [=](std::int64_t n) -> const std::int8_t* {
      const std::int64_t row = rows[static_cast<std::size_t>(n)];
      return row < 0 ? nullptr : weight + row * in_features;
    };
  });
}

}  // namespace quanta::cpu
