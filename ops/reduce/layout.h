#pragma once

// Private: how a tensor lies for a reduction over some of its dimensions.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// `x` as a contiguous block [outer, count, inner], of which `count` is reduced. Where the reduced
/// dimensions are neighbours in memory (in any memory order) nothing is copied.
struct ReduceLayout {
  Tensor data;
  std::int64_t outer = 1;
  std::int64_t count = 1;
  std::int64_t inner = 1;
  Dims result_sizes;  ///< the kept dimensions in memory order: outer * inner elements
  /// Whether x is contiguous and the reduced dimensions are its last ones.
  bool innermost = true;

  /// No `dims` means all of them.
  ReduceLayout(std::string_view op, const Tensor& x, const Dims& dims) {
    const auto rank = x.sizes().size();
    std::array<bool, Dims::kMaxDims> is_reduced{};
    for (const std::int64_t dim : dims) {
      const auto d = static_cast<std::size_t>(wrap_dim(dim, x.dim(), op));
      QUANTA_CHECK(!is_reduced[d], "{}: dim: expected each dimension once, got {}", op, dims);
      is_reduced[d] = true;
    }
    if (dims.empty()) is_reduced.fill(true);

    Dims order;
    for (std::size_t d = 0; d < rank; ++d) order.push_back(static_cast<std::int64_t>(d));
    const auto reduces = [&](std::int64_t d) { return is_reduced[static_cast<std::size_t>(d)]; };
    const bool dense = x.is_dense();
    if (dense && !x.is_contiguous()) {
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return x.strides()[static_cast<std::size_t>(a)] > x.strides()[static_cast<std::size_t>(b)];
      });
    }
    const auto first = std::find_if(order.begin(), order.end(), reduces);
    const auto last = std::find_if_not(first, order.end(), reduces);
    if (!dense || std::any_of(last, order.end(), reduces)) {
      std::stable_partition(order.begin(), order.end(),
                            [&](std::int64_t d) { return !reduces(d); });
    }
    data = x.permute(order).contiguous();

    bool seen = false;
    Dims kept;
    for (std::size_t i = 0; i < rank; ++i) {
      const std::int64_t size = data.sizes()[i];
      if (reduces(order[i])) {
        count *= size;
        seen = true;
      } else {
        (seen ? inner : outer) *= size;
        result_sizes.push_back(size);
        kept.push_back(order[i]);
      }
    }
    innermost = x.is_contiguous();
    for (std::size_t d = 0; d < rank; ++d) {
      if (d > 0 && is_reduced[d - 1] && !is_reduced[d]) innermost = false;
      if (is_reduced[d]) {
        reduced_.push_back(static_cast<std::int64_t>(d));
      } else {
        const auto* at = std::find(kept.begin(), kept.end(), static_cast<std::int64_t>(d));
        to_logical_.push_back(at - kept.begin());
      }
    }
  }

  /// A result of result_sizes in x's logical order; `keepdim` leaves reduced dimensions of size 1.
  Tensor restored(const Tensor& result, bool keepdim) const {
    Tensor logical = result.permute(to_logical_);
    if (keepdim) {
      for (const std::int64_t d : reduced_) logical = logical.unsqueeze(d);
    }
    return logical;
  }

 private:
  Dims to_logical_;
  Dims reduced_;
};

}  // namespace quanta::detail
