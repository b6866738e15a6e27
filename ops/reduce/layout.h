#pragma once

// Private: how a tensor lies for a reduction over some of its dimensions.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::reduction {

/// What results of integers are like.
inline const Tensor& int64_like() {
  static const Tensor like = Tensor::empty({}, DType::Int64);
  return like;
}

/// A tensor as a contiguous block [outer, count, inner], of which `count` is reduced. Where the
/// reduced dimensions are neighbours in memory (in any memory order) nothing has to be copied.
struct ReduceLayout {
  std::int64_t outer = 1;
  std::int64_t count = 1;
  std::int64_t inner = 1;
  /// Of the result in x's logical order; its memory is [outer, inner].
  Dims sizes, strides;
  /// Whether x is contiguous and the reduced dimensions are its last ones.
  bool innermost = true;

  /// No `dims` means all of them. `keepdim` leaves reduced dimensions of size 1.
  ReduceLayout(std::string_view op, const Tensor& x, const Dims& dims, bool keepdim) {
    const auto rank = x.sizes().size();
    std::array<bool, Dims::kMaxDims> is_reduced{};
    for (const std::int64_t dim : dims) {
      const auto d = static_cast<std::size_t>(wrap_dim(dim, x.dim(), op));
      QUANTA_CHECK(!is_reduced[d], "{}: dim: expected each dimension once, got {}", op, dims);
      is_reduced[d] = true;
    }
    if (dims.empty()) is_reduced.fill(true);

    for (std::size_t d = 0; d < rank; ++d) order_.push_back(static_cast<std::int64_t>(d));
    const auto reduces = [&](std::int64_t d) { return is_reduced[static_cast<std::size_t>(d)]; };
    const bool contiguous = x.is_contiguous();
    const bool dense = contiguous || x.is_dense();
    if (dense && !contiguous) {
      std::stable_sort(order_.begin(), order_.end(), [&](std::int64_t a, std::int64_t b) {
        return x.strides()[static_cast<std::size_t>(a)] > x.strides()[static_cast<std::size_t>(b)];
      });
    }
    const auto first = std::find_if(order_.begin(), order_.end(), reduces);
    const auto last = std::find_if_not(first, order_.end(), reduces);
    if (!dense || std::any_of(last, order_.end(), reduces)) {
      std::stable_partition(order_.begin(), order_.end(),
                            [&](std::int64_t d) { return !reduces(d); });
    }

    bool seen = false;
    for (const std::int64_t d : order_) {
      const std::int64_t size = x.sizes()[static_cast<std::size_t>(d)];
      if (reduces(d)) {
        count *= size;
        seen = true;
      } else {
        (seen ? inner : outer) *= size;
      }
    }
    innermost = contiguous;
    for (std::size_t d = 1; d < rank; ++d) {
      if (is_reduced[d - 1] && !is_reduced[d]) innermost = false;
    }
    lay_out_result(x.sizes(), is_reduced, keepdim);
  }

  /// The elements of x, whose layout this is, as the block.
  Tensor block(const Tensor& x) const {
    const bool in_order = std::is_sorted(order_.begin(), order_.end());
    return in_order ? x.contiguous() : x.permute(order_).contiguous();
  }

 private:
  // The kept dimensions lie in memory in the order that they have in the block.
  void lay_out_result(const Dims& from, const std::array<bool, Dims::kMaxDims>& is_reduced,
                      bool keepdim) {
    std::array<std::int64_t, Dims::kMaxDims> kept_strides{};
    std::int64_t stride = 1;
    for (std::size_t i = from.size(); i-- > 0;) {
      const auto d = static_cast<std::size_t>(order_[i]);
      if (is_reduced[d]) continue;
      kept_strides[d] = stride;
      stride *= std::max<std::int64_t>(from[d], 1);
    }
    std::int64_t next = 1;  // what unsqueeze gives a dimension of size 1: the next one's extent
    for (std::size_t d = from.size(); d-- > 0;) {
      if (is_reduced[d] && !keepdim) continue;
      sizes.insert(0, is_reduced[d] ? 1 : from[d]);
      strides.insert(0, is_reduced[d] ? next : kept_strides[d]);
      next = sizes[0] * strides[0];
    }
  }

  Dims order_;
};

}  // namespace quanta::reduction
