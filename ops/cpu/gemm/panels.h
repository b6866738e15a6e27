#pragma once

// Private: the layout of int8 weights that all products of ours share, and the codes that they are
// multiplied with.
//
// Four bytes of a channel lie together and sixteen channels side by side, so that one instruction
// multiplies four codes of a row with four weights of each channel and no sum over lanes is left to
// do. int16_gemm.h keeps pairs of 16-bit weights in the same order.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/packed_forms.h"

namespace quanta::cpu {

/// How large codes can be.
enum class CodeBits : std::uint8_t {
  Eight,
  Seven,  ///< up to 128: with reduced range, ties can round to 2^7 itself
};

inline constexpr std::int64_t kPanelChannels = 16;
/// Codes of a channel that lie together.
inline constexpr std::int64_t kPanelDepth = 4;
/// Bytes of a panel's next codes of all channels.
inline constexpr std::int64_t kPanelGroup = kPanelChannels * kPanelDepth;

/// The place of weight k of a channel in a panel of elements of four bytes or fewer.
template <typename T>
constexpr std::int64_t panel_index(std::int64_t channel, std::int64_t k) {
  constexpr auto kDepth = static_cast<std::int64_t>(4 / sizeof(T));
  return (k / kDepth * kPanelChannels + channel) * kDepth + k % kDepth;
}

/// A weight [N, K] in panels of 16 channels: the code of (n, k) is at [n / 16][k / 4][n % 16][k %
/// 4], with zeros where N (to a multiple of 32) and K (to `depth`) end.
///
/// Panels whose products are always wanted together can take turns group by group, which makes one
/// stream of them: the gates of a recurrent layer lie at [block][k / 4][gate][unit][k % 4]. One row
/// of codes is up to a third slower from streams of their own. The products of any number of panels
/// (gemv_int8_panels, gemm_codes, gemm_int8) want them one behind the other.
struct CodePanels {
  std::shared_ptr<const std::byte> memory;
  std::int64_t out_features = 0, in_features = 0;
  std::int64_t depth = 0;     ///< K filled up: to a multiple of 4, or of 64 where there are tiles
  std::int64_t together = 1;  ///< panels that take turns
  bool tiles = false;         ///< whether products of many rows use tiles

  /// Panels that have channels.
  std::int64_t count() const noexcept { return ceil_div(out_features, kPanelChannels); }
  /// The same filled up to an even number.
  std::int64_t panels() const noexcept { return (count() + 1) / 2 * 2; }
  std::int64_t panel_bytes() const noexcept { return depth * kPanelChannels; }
  /// Groups of a panel that have codes.
  std::int64_t groups() const noexcept { return ceil_div(in_features, kPanelDepth); }
  /// Where panel `index` begins. Its groups follow each other at group_bytes().
  const std::int8_t* panel(std::int64_t index) const noexcept {
    return reinterpret_cast<const std::int8_t*>(memory.get()) + panel_offset(index);
  }
  std::int64_t group_bytes() const noexcept { return together * kPanelGroup; }
  std::int64_t panel_offset(std::int64_t index) const noexcept {
    return (index - index % together) * panel_bytes() + index % together * kPanelGroup;
  }
};

/// Where packed panels are looked for and kept: `forms` of the weight (null: nowhere), under a name
/// that says which of its codes are in which row.
struct PanelForms {
  detail::PackedForms* forms = nullptr;
  std::string_view rows = "as they are";
};

/// `weight` is [N, K], row after row.
CodePanels pack_code_panels(const std::int8_t* weight, std::int64_t out_features,
                            std::int64_t in_features, const PanelForms& forms = {});
/// The same of rows that `make_rows` makes when they are needed.
CodePanels pack_code_panels(const std::function<std::vector<std::int8_t>()>& make_rows,
                            std::int64_t out_features, std::int64_t in_features,
                            const PanelForms& forms);
/// Channel n is row rows[n] of `weight` [.., K], zeros where that is negative. `together` panels
/// take turns, and there is a multiple of them.
CodePanels pack_code_panels(const std::int8_t* weight, std::span<const std::int64_t> rows,
                            std::int64_t in_features, std::int64_t together,
                            const PanelForms& forms = {});

/// Adds the products of a row of codes with a panel's channels to sums [16]. Sums wrap. This is the
/// product of plain code and the reference of all others.
inline void add_panel_products(const std::uint8_t* codes, const CodePanels& weight,
                               std::int64_t panel, std::int32_t* sums) {
  for (std::int64_t n = 0; n < kPanelChannels; ++n) {
    auto sum = static_cast<std::uint32_t>(sums[n]);
    for (std::int64_t k = 0; k < weight.in_features; ++k) {
      const std::int8_t* group = weight.panel(panel) + k / kPanelDepth * weight.group_bytes();
      sum += static_cast<std::uint32_t>(codes[k] * group[n * kPanelDepth + k % kPanelDepth]);
    }
    sums[n] = static_cast<std::int32_t>(sum);
  }
}

}  // namespace quanta::cpu
