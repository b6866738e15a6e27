#include "quanta/ops/cpu/gemm/linear_half.h"

#include <algorithm>
#include <utility>

#include "quanta/ops/cpu/gemm/half_product.h"
#include "quanta/ops/cpu/work_size.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

/// Calls visit(place in the panels, place in [N, K]) for each element.
template <typename Visit>
void for_each_half(std::int64_t out_features, std::int64_t in_features, Visit&& visit) {
  constexpr std::int64_t kPanel = kHalfPanel;
  for (std::int64_t n = 0; n < out_features; ++n) {
    for (std::int64_t k = 0; k < in_features; ++k) {
      visit((n / kPanel * in_features + k) * kPanel + n % kPanel, n * in_features + k);
    }
  }
}

/// The fewest rows for which a Float32 copy of a Float16 weight is faster than converting it.
constexpr std::int64_t kMinFloatRows = 4;

}  // namespace

HalfLinearWeight::HalfLinearWeight(const Tensor& weight, Tensor packed_bias)
    : out_features(weight.size(0)),
      in_features(weight.size(1)),
      panels(Tensor::zeros({ceil_div(out_features, kHalfPanel), in_features, kHalfPanel},
                           DType::Float16)),
      bias(std::move(packed_bias)) {
  const auto* src = static_cast<const std::uint16_t*>(weight.data_ptr());
  auto* dst = static_cast<std::uint16_t*>(panels.data_ptr());
  for_each_half(out_features, in_features,
                [&](std::int64_t packed, std::int64_t plain) { dst[packed] = src[plain]; });
}

const float* HalfLinearWeight::floats() const {
  // Only weights that fit into the L2 cache get a copy. Converting takes a tenth to a third of the
  // time of the products, but a large weight is Float16 to save memory.
  constexpr std::int64_t kMaxBytes = std::int64_t{512} * 1024;
  if (panels.numel() * static_cast<std::int64_t>(sizeof(float)) > kMaxBytes) return nullptr;
  std::call_once(floats_once_, [this] { floats_ = panels.to(DType::Float32); });
  return static_cast<const float*>(floats_.data_ptr());
}

Tensor HalfLinearWeight::weight() const {
  Tensor weight = Tensor::empty({out_features, in_features}, DType::Float16);
  const auto* src = static_cast<const std::uint16_t*>(panels.data_ptr());
  auto* dst = static_cast<std::uint16_t*>(weight.data_ptr());
  for_each_half(out_features, in_features,
                [&](std::int64_t packed, std::int64_t plain) { dst[plain] = src[packed]; });
  return weight;
}

std::string_view linear_half_rows(const float* x, std::int64_t rows, const HalfLinearWeight& packed,
                                  bool relu, float* out) {
  const std::int64_t channels = packed.out_features;
  const std::int64_t depth = packed.in_features;
  const Tensor& bias = packed.bias;
  const HalfProduct call{x,
                         rows,
                         static_cast<const std::uint16_t*>(packed.panels.data_ptr()),
                         rows >= kMinFloatRows ? packed.floats() : nullptr,
                         channels,
                         depth,
                         bias.defined() ? static_cast<const float*>(bias.data_ptr()) : nullptr,
                         relu};
  const std::int64_t grain = channel_grain(rows * depth * channels * 4, channels);
  parallel_for(
      packed.panels.size(0), ceil_div(grain, kHalfPanel),
      [&](std::int64_t begin, std::int64_t end) { multiply_halves(call, begin, end, out); });
  return rows == 1 ? "quanta:gemv" : "quanta:gemm";
}

}  // namespace quanta::cpu
