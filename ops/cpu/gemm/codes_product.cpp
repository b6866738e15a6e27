#include "quanta/ops/cpu/gemm/codes_product.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/gemm/multiply_codes.h"
#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/ops/cpu/work_size.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

// Rows and columns whose sums are taken at a time: they stay in the nearer caches until the reader
// has them.
constexpr std::int64_t kBlockRows = 64;
constexpr std::int64_t kBlockPanels = 16;
// Fewer columns in a part are not worth packing its rows once more.
constexpr std::int64_t kLeastPanels = 8;
// Of the right side at a time, or one matrix of it.
constexpr std::int64_t kPackedBytes = std::int64_t{16} << 20U;

/// Views of one size that lie anywhere: all batches of an operand.
class Matrices {
 public:
  Matrices(const Tensor& x, const Dims& result)
      : src_(static_cast<const std::uint8_t*>(x.data_ptr())),
        row_stride_(x.strides()[x.sizes().size() - 2]),
        column_stride_(x.strides()[x.sizes().size() - 1]) {
    for (std::size_t d = 0; d + 2 < result.size(); ++d) {
      sizes_.push_back(result[d]);
      strides_.push_back(x.sizes()[d] == 1 ? 0 : x.strides()[d]);
    }
  }
  std::int64_t row_stride() const { return row_stride_; }
  std::int64_t column_stride() const { return column_stride_; }
  /// Whether all batches are one matrix.
  bool is_one() const {
    return std::all_of(strides_.begin(), strides_.end(), [](std::int64_t s) { return s == 0; });
  }
  /// Whether each matrix, of so many rows, begins where the rows of the one before end.
  bool follow_each_other(std::int64_t rows) const {
    std::int64_t step = rows * row_stride_;
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      if (sizes_[d] != 1 && strides_[d] != step) return false;
      step *= sizes_[d];
    }
    return true;
  }
  /// The matrix of a batch of the result.
  const std::uint8_t* operator[](std::int64_t batch) const {
    std::int64_t offset = 0;
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      offset += batch % sizes_[d] * strides_[d];
      batch /= sizes_[d];
    }
    return src_ + offset;
  }

 private:
  const std::uint8_t* src_;
  std::int64_t row_stride_, column_stride_;
  Dims sizes_, strides_;
};

/// The same codes with the last dimension dense, or for columns the last but one.
Tensor readable(const Tensor& x, bool columns) {
  const std::size_t last = x.sizes().size() - 1;
  const bool dense = x.strides()[last] == 1 || (columns && x.strides()[last - 1] == 1);
  return dense ? x : x.contiguous();
}

template <typename T>
T* buffer(onednn::Buffer use, std::int64_t count) {
  return reinterpret_cast<T*>(
      onednn::thread_buffer(use, static_cast<std::size_t>(count) * sizeof(T)));
}

class CodesProduct {
 public:
  CodesProduct(const CodesOperand& lhs, const CodesOperand& rhs, const Dims& result,
               const SumsReader& reader)
      : lhs_(lhs.codes, result),
        rhs_(rhs.codes, result),
        reader_(reader),
        rows_(result[result.size() - 2]),
        columns_(result.back()),
        depth_(lhs.codes.size(-1)),
        batches_(checked_numel(result) / (rows_ * columns_)),
        lhs_flip_(lhs.is_signed ? kFlip : std::uint8_t{0}),
        rhs_flip_(rhs.is_signed ? std::uint8_t{0} : kFlip),
        lhs_zero_(lhs.zero_point + lhs_flip_),
        rhs_zero_(rhs.zero_point - rhs_flip_),
        panels_(packed_panels(columns_)),
        panel_bytes_(kPanelChannels * packed_depth(depth_)) {
    if (rhs_.is_one() && lhs_.follow_each_other(rows_)) rows_ *= std::exchange(batches_, 1);
  }

  std::string_view run() {
    const std::int64_t matrix_bytes = panels_ * (panel_bytes_ + kTermBytes);
    const std::int64_t slice =
        rhs_.is_one() ? batches_
                      : std::clamp<std::int64_t>(kPackedBytes / matrix_bytes, 1, batches_);
    const std::int64_t packed = rhs_.is_one() ? 1 : slice;
    packed_ = buffer<std::int8_t>(onednn::Buffer::Padded, packed * matrix_bytes);
    terms_ = reinterpret_cast<std::int32_t*>(packed_ + packed * panels_ * panel_bytes_);
    for (first_ = 0; first_ < batches_; first_ += slice) {
      multiply_slice(std::min(slice, batches_ - first_), packed);
    }
    return multiply_codes_name(std::min(rows_, kBlockRows));
  }

 private:
  /// What turns signed codes into unsigned ones and back.
  static constexpr std::uint8_t kFlip = 128;
  /// One term for each column of a panel.
  static constexpr std::int64_t kTermBytes = kPanelChannels * 4;

  /// So many batches from first_ on, and at most so many matrices of the right side for them.
  void multiply_slice(std::int64_t batches, std::int64_t matrices) {
    const int threads = threads_for(batches * rows_ * columns_ * depth_);
    const std::int64_t pairs = std::min(batches, matrices) * panels_ / 2;
    parallel_for(pairs, threads == 1 ? pairs : 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t pair = begin; pair < end; ++pair) pack_pair(pair);
    });
    const std::int64_t blocks = batches * ceil_div(rows_, kBlockRows);
    // A few rows are shared by their columns.
    const std::int64_t parts = std::clamp<std::int64_t>(ceil_div<std::int64_t>(threads, blocks), 1,
                                                        ceil_div(panels_, kLeastPanels));
    const std::int64_t tasks = blocks * parts;
    parallel_for(tasks, threads == 1 ? tasks : 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t part = task % parts;
        multiply_block(task / parts, panels_ / 2 * part / parts * 2,
                       panels_ / 2 * (part + 1) / parts * 2);
      }
    });
  }

  /// Two panels of the columns, and what their zero points and that of the rows add to sums:
  ///   sum of (a - za) * (b - zb) =
  ///       sum of a * b - zb * (sum of a) - za * (sum of b) + depth * za * zb
  void pack_pair(std::int64_t pair) {
    const std::int64_t matrix = pair / (panels_ / 2);
    const std::int64_t first = pair % (panels_ / 2) * 2;
    const CodeMatrix columns{rhs_[first_ + matrix], depth_, columns_, rhs_.row_stride(),
                             rhs_.column_stride()};
    std::int8_t* to = packed_ + pair * 2 * panel_bytes_;
    pack_columns(columns, rhs_flip_, first, 2, to);
    std::int32_t* terms = terms_ + pair * 2 * kPanelChannels;
    // Their sums are the products with ones.
    auto* ones = buffer<std::uint8_t>(onednn::Buffer::Scratchpad, packed_depth(depth_));
    std::fill_n(ones, packed_depth(depth_), std::uint8_t{1});
    multiply_codes({ones, 1, to, 2, depth_}, terms);
    for (std::int64_t n = 0; n < 2 * kPanelChannels; ++n) terms[n] = term(-lhs_zero_, terms[n], 0);
  }

  /// Panels [begin, end) of a block of rows.
  void multiply_block(std::int64_t block, std::int64_t begin, std::int64_t end) const {
    const std::int64_t blocks_of_batch = ceil_div(rows_, kBlockRows);
    const std::int64_t matrix = rhs_.is_one() ? 0 : block / blocks_of_batch;
    const std::int64_t batch = first_ + block / blocks_of_batch;
    const std::int64_t row = block % blocks_of_batch * kBlockRows;
    const std::int64_t count = std::min(kBlockRows, rows_ - row);
    auto* rows = buffer<std::uint8_t>(
        onednn::Buffer::Scratchpad,
        round_up(std::min(rows_, kBlockRows), kPackedRows) * packed_depth(depth_));
    std::array<std::int32_t, kBlockRows> row_terms;
    pack_rows(lhs_[batch] + row * lhs_.row_stride(), lhs_.row_stride(), count, depth_, lhs_flip_,
              rows, row_terms.data());
    const std::int32_t both = term(static_cast<std::int32_t>(depth_), lhs_zero_ * rhs_zero_, 0);
    for (std::size_t r = 0; r < static_cast<std::size_t>(count); ++r) {
      row_terms[r] = term(-rhs_zero_, row_terms[r], both);
    }
    auto* sums =
        buffer<std::int32_t>(onednn::Buffer::Sums, kBlockRows * kBlockPanels * kPanelChannels);
    for (std::int64_t panel = begin; panel < end; panel += kBlockPanels) {
      const std::int64_t panels = std::min(kBlockPanels, end - panel);
      const std::int64_t at = matrix * panels_ + panel;
      multiply_codes({rows, count, packed_ + at * panel_bytes_, panels, depth_}, sums);
      const std::int64_t column = panel * kPanelChannels;
      const std::int64_t columns = std::min(panels * kPanelChannels, columns_ - column);
      for (std::int64_t r = 0; r < count; ++r) {
        reader_({sums + r * panels * kPanelChannels, terms_ + at * kPanelChannels,
                 row_terms[static_cast<std::size_t>(r)], columns,
                 (batch * rows_ + row + r) * columns_ + column});
      }
    }
  }

  // a * b + c. Terms may leave 32 bits, but not their sum with the products: all wrap.
  static std::int32_t term(std::int32_t a, std::int32_t b, std::int32_t c) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b) +
                                     static_cast<std::uint32_t>(c));
  }

  Matrices lhs_, rhs_;
  const SumsReader& reader_;
  std::int64_t rows_, columns_, depth_, batches_;
  std::uint8_t lhs_flip_, rhs_flip_;
  std::int32_t lhs_zero_, rhs_zero_;
  std::int64_t panels_, panel_bytes_;
  std::int64_t first_ = 0;  // batch of the slice
  std::int8_t* packed_ = nullptr;
  std::int32_t* terms_ = nullptr;
};

}  // namespace

CodesOperand CodesOperand::of(const Tensor& codes, std::int64_t zero_point) {
  const DType dtype = codes.dtype();
  return {codes, dtype == DType::Int8 || dtype == DType::QInt8,
          static_cast<std::int32_t>(zero_point)};
}

std::string_view multiply_operands(const CodesOperand& lhs, const CodesOperand& rhs,
                                   const Dims& result, const SumsReader& reader) {
  if (lhs.codes.size(-1) == 0) {
    std::vector<std::int32_t> sums(static_cast<std::size_t>(result.back()));
    const std::vector<std::int32_t> terms(sums.size());
    const std::int64_t count = checked_numel(result);
    for (std::int64_t at = 0; at < count; at += result.back()) {
      std::fill(sums.begin(), sums.end(), 0);
      reader({sums.data(), terms.data(), 0, result.back(), at});
    }
    return "fill";
  }
  const CodesOperand rows{readable(lhs.codes, false), lhs.is_signed, lhs.zero_point};
  const CodesOperand columns{readable(rhs.codes, true), rhs.is_signed, rhs.zero_point};
  return CodesProduct(rows, columns, result, reader).run();
}

}  // namespace quanta::cpu
