#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/dims.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/tensor.h"

// Private: how elementwise ops walk over tensors of any strides.

namespace quanta::cpu {

/// Elements below which a second thread costs more than it brings.
inline constexpr std::int64_t kElementGrain = 32768;

/// Past the caches once the result is larger than what they can be expected to keep. Such stores are
/// of whole cache lines: a view may begin anywhere.
inline Store store_for(std::size_t result_bytes, const void* result) noexcept {
  constexpr std::size_t kLarge = std::size_t{32} << 20;
  constexpr std::uintptr_t kLine = 64;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(result) % kLine == 0;
  return result_bytes >= kLarge && is_aligned ? Store::Streaming : Store::Cached;
}

/// body(begin, end) over `count` elements; every begin is a multiple of 64, so that parts of an
/// aligned tensor are aligned as well.
template <typename Body>
void parallel_elements(std::int64_t count, Body&& body) {
  if (count <= kElementGrain) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
  constexpr std::int64_t kBlock = 1024;
  parallel_for(ceil_div(count, kBlock), kElementGrain / kBlock,
               [&](std::int64_t begin, std::int64_t end) {
                 body(begin * kBlock, std::min(end * kBlock, count));
               });
}

/// The loops over `kOperands` tensors of the same sizes (a broadcast one has strides of 0): sorted
/// so that the first operand's memory is walked in order, neighbours merged where all allow it.
template <std::size_t kOperands>
class StridedLoop {
 public:
  using Offsets = std::array<std::int64_t, kOperands>;

  StridedLoop(const Dims& sizes, const std::array<const Dims*, kOperands>& strides) {
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] == 0) return;
    }
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] == 1) continue;
      // Insertion by falling stride of the first operand; equal ones keep their order.
      std::size_t at = sizes_.size();
      while (at > 0 && strides_[0][at - 1] < (*strides[0])[d]) --at;
      sizes_.insert(at, sizes[d]);
      for (std::size_t k = 0; k < kOperands; ++k) strides_[k].insert(at, (*strides[k])[d]);
    }
    for (std::size_t d = sizes_.size(); d-- > 1;) {
      bool mergeable = true;
      for (std::size_t k = 0; k < kOperands; ++k) {
        mergeable = mergeable && strides_[k][d - 1] == strides_[k][d] * sizes_[d];
      }
      if (!mergeable) continue;
      sizes_[d - 1] *= sizes_[d];
      sizes_.erase(d);
      for (std::size_t k = 0; k < kOperands; ++k) strides_[k].erase(d - 1);
    }
    inner_ = 1;
    if (!sizes_.empty()) {
      const std::size_t last = sizes_.size() - 1;
      inner_ = sizes_[last];
      sizes_.erase(last);
      for (std::size_t k = 0; k < kOperands; ++k) {
        inner_strides_[k] = strides_[k][last];
        strides_[k].erase(last);
      }
    }
    rows_ = product(sizes_);
  }

  std::int64_t rows() const noexcept { return rows_; }
  /// Elements of a row, and the steps between them.
  std::int64_t inner() const noexcept { return inner_; }
  const Offsets& inner_strides() const noexcept { return inner_strides_; }

  /// The steps from one row to the next, as far as rows of the innermost other dimension go.
  Offsets row_strides() const noexcept {
    Offsets strides{};
    if (sizes_.empty()) return strides;
    for (std::size_t k = 0; k < kOperands; ++k) strides[k] = strides_[k].back();
    return strides;
  }

  /// row(offsets, count): the first elements' offsets and how many to do from there. Rows go to
  /// several threads; a single long row is cut.
  template <typename Row>
  void run(Row&& row) const {
    const Offsets step = row_strides();
    run_together([&](Offsets offsets, std::int64_t count, std::int64_t rows) {
      for (std::int64_t r = 0; r < rows; ++r) {
        row(offsets, count);
        for (std::size_t k = 0; k < kOperands; ++k) offsets[k] += step[k];
      }
    });
  }

  /// rows(offsets, count, how many): rows that are row_strides() apart are done in one call.
  template <typename Rows>
  void run_together(Rows&& rows) const {
    if (rows_ == 1) {
      parallel_elements(inner_, [&](std::int64_t begin, std::int64_t end) {
        Offsets offsets;
        for (std::size_t k = 0; k < kOperands; ++k) offsets[k] = begin * inner_strides_[k];
        rows(offsets, end - begin, std::int64_t{1});
      });
      return;
    }
    const std::int64_t grain =
        std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(inner_, 1));
    parallel_for(rows_, grain, [&](std::int64_t begin, std::int64_t end) {
      Dims index = unravel(begin);
      Offsets offsets{};
      for (std::size_t k = 0; k < kOperands; ++k) {
        for (std::size_t d = 0; d < index.size(); ++d) offsets[k] += index[d] * strides_[k][d];
      }
      for (std::int64_t r = begin; r < end;) {
        const std::int64_t together = std::min(end - r, sizes_.back() - index.back());
        rows(offsets, inner_, together);
        r += together;
        advance(index, offsets, together);
      }
    });
  }

  /// row(offsets) for one after the other on the calling thread: where rows share results.
  template <typename Row>
  void for_each_row(Row&& row) const {
    Dims index = unravel(0);
    Offsets offsets{};
    for (std::int64_t r = 0; r < rows_; ++r) {
      row(offsets);
      advance(index, offsets);
    }
  }

 private:
  Dims unravel(std::int64_t row) const {
    Dims index;
    index.resize(sizes_.size());
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      index[d] = row % sizes_[d];
      row /= sizes_[d];
    }
    return index;
  }
  // Moves on by `rows`, which may end the innermost dimension but not pass it.
  void advance(Dims& index, Offsets& offsets, std::int64_t rows = 1) const {
    for (std::size_t d = sizes_.size(); d-- > 0; rows = 1) {
      index[d] += rows;
      for (std::size_t k = 0; k < kOperands; ++k) offsets[k] += strides_[k][d] * rows;
      if (index[d] < sizes_[d]) return;
      index[d] = 0;
      for (std::size_t k = 0; k < kOperands; ++k) offsets[k] -= strides_[k][d] * sizes_[d];
    }
  }

  Dims sizes_;
  std::array<Dims, kOperands> strides_;
  Offsets inner_strides_{};
  std::int64_t inner_ = 0;
  std::int64_t rows_ = 0;
};

/// The strides of `x` as a tensor of the broadcast `sizes`.
inline Dims broadcast_strides(const Tensor& x, const Dims& sizes) {
  Dims strides;
  strides.resize(sizes.size());
  const std::size_t skipped = sizes.size() - x.sizes().size();
  for (std::size_t d = skipped; d < sizes.size(); ++d) {
    strides[d] = x.sizes()[d - skipped] == 1 ? 0 : x.strides()[d - skipped];
  }
  return strides;
}

/// Whether both lie in memory as `out` does, element by element.
inline bool is_flat(const Tensor& lhs, const Tensor& rhs, const Tensor& out) noexcept {
  return lhs.sizes() == out.sizes() && rhs.sizes() == out.sizes() &&
         lhs.strides() == out.strides() && rhs.strides() == out.strides();
}

/// out = kernel(lhs, rhs) with broadcasting, for a dense `out` of the broadcast sizes.
/// kernel(lhs, rhs, dst, count, Rhs, Store) works on contiguous rows; what is strided is gathered
/// into small buffers before. Dense rows of `lhs` that share one row of `rhs`, as the pixels of an
/// image share a vector of channels, go to repeated(lhs, rhs, dst, rows, count) together.
template <typename T, typename Kernel, typename Repeated>
void broadcast_binary(const Tensor& lhs, const Tensor& rhs, const Tensor& out, Kernel&& kernel,
                      Repeated&& repeated) {
  const auto* lhs_data = static_cast<const T*>(lhs.data_ptr());
  const auto* rhs_data = static_cast<const T*>(rhs.data_ptr());
  auto* out_data = static_cast<T*>(out.data_ptr());
  if (is_flat(lhs, rhs, out)) {
    const Store store = store_for(out.nbytes(), out_data);
    parallel_elements(out.numel(), [&](std::int64_t begin, std::int64_t end) {
      kernel(lhs_data + begin, rhs_data + begin, out_data + begin, end - begin, Rhs::Row, store);
    });
    return;
  }
  const Dims lhs_strides = broadcast_strides(lhs, out.sizes());
  const Dims rhs_strides = broadcast_strides(rhs, out.sizes());
  const StridedLoop<3> loop(out.sizes(), {&out.strides(), &lhs_strides, &rhs_strides});
  const std::int64_t lhs_step = loop.inner_strides()[1];
  const std::int64_t rhs_step = loop.inner_strides()[2];
  const auto [out_row, lhs_row, rhs_row] = loop.row_strides();
  if (loop.rows() > 1 && lhs_step == 1 && rhs_step == 1 && rhs_row == 0 &&
      lhs_row == loop.inner() && out_row == loop.inner()) {
    loop.run_together([&](const std::array<std::int64_t, 3>& offsets, std::int64_t count,
                          std::int64_t rows) {
      repeated(lhs_data + offsets[1], rhs_data + offsets[2], out_data + offsets[0], rows, count);
    });
    return;
  }
  loop.run([&](const std::array<std::int64_t, 3>& offsets, std::int64_t count) {
    T* dst = out_data + offsets[0];
    const T* left = lhs_data + offsets[1];
    const T* right = rhs_data + offsets[2];
    const bool left_is_row = lhs_step == 1 || count == 1;
    const bool right_is_row = rhs_step == 1 || rhs_step == 0 || count == 1;
    const Rhs kind = rhs_step == 0 ? Rhs::Scalar : Rhs::Row;
    if (left_is_row && right_is_row) {
      kernel(left, right, dst, count, kind, Store::Cached);
      return;
    }
    constexpr std::int64_t kChunk = 512;
    std::array<T, kChunk> left_buffer;
    std::array<T, kChunk> right_buffer;
    for (std::int64_t begin = 0; begin < count; begin += kChunk) {
      const std::int64_t length = std::min(kChunk, count - begin);
      const T* left_part = left + begin * lhs_step;
      const T* right_part = right + begin * rhs_step;
      if (!left_is_row) {
        for (std::int64_t i = 0; i < length; ++i) {
          left_buffer[static_cast<std::size_t>(i)] = left_part[i * lhs_step];
        }
        left_part = left_buffer.data();
      }
      if (!right_is_row) {
        for (std::int64_t i = 0; i < length; ++i) {
          right_buffer[static_cast<std::size_t>(i)] = right_part[i * rhs_step];
        }
        right_part = right_buffer.data();
      }
      kernel(left_part, right_part, dst + begin, length, kind, Store::Cached);
    }
  });
}

template <typename T, typename Kernel>
void broadcast_binary(const Tensor& lhs, const Tensor& rhs, const Tensor& out, Kernel&& kernel) {
  broadcast_binary<T>(
      lhs, rhs, out, kernel,
      [&](const T* left, const T* right, T* dst, std::int64_t rows, std::int64_t count) {
        for (std::int64_t i = 0; i < rows * count; i += count) {
          kernel(left + i, right, dst + i, count, Rhs::Row, Store::Cached);
        }
      });
}

/// The order that a broadcast result should have: the first operand's, unless that one was
/// broadcast and the other one was not.
inline MemoryFormat broadcast_format(const Tensor& lhs, const Tensor& rhs, const Dims& sizes) {
  const bool lhs_whole = lhs.sizes() == sizes;
  const bool rhs_whole = rhs.sizes() == sizes;
  if (!lhs_whole && rhs_whole) return rhs.suggested_format();
  return lhs.sizes().size() == sizes.size() ? lhs.suggested_format() : MemoryFormat::Contiguous;
}

}  // namespace quanta::cpu
