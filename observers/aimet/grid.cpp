#include "quanta/observers/aimet/grid.h"

#include <bit>

#include "quanta/runtime/check.h"

namespace quanta::aimet {
namespace {

constexpr std::int64_t kMostBits = 52;
constexpr std::int64_t kLargest = std::int64_t{1} << kMostBits;

std::int64_t ceil_half(std::int64_t sum) { return sum >= 0 ? (sum + 1) / 2 : -(-sum / 2); }

}  // namespace

Grid::Grid(std::int64_t qmin, std::int64_t qmax) : qmin_(qmin), qmax_(qmax) {
  QUANTA_CHECK(qmin >= -kLargest && qmax <= kLargest && qmin < qmax,
               "Grid: qmax: expected qmin < qmax within 2^52, got {} and {}", qmin, qmax);
}

Grid Grid::from_bitwidth(std::int64_t bitwidth, bool is_signed) {
  QUANTA_CHECK(bitwidth >= 1 && bitwidth <= kMostBits, "Grid: bitwidth: expected 1..52, got {}",
               bitwidth);
  return from_num_steps((std::int64_t{1} << bitwidth) - 1, is_signed);
}

Grid Grid::from_num_steps(std::int64_t num_steps, bool is_signed) {
  QUANTA_CHECK(num_steps >= 1 && num_steps <= kLargest, "Grid: num_steps: expected 1..2^52, got {}",
               num_steps);
  if (!is_signed) return {0, num_steps};
  return {-ceil_half(num_steps), num_steps / 2};
}

std::int64_t Grid::centroid() const noexcept { return ceil_half(qmin_ + qmax_); }

bool Grid::has_bitwidth() const noexcept {
  return has_sign() && std::has_single_bit(static_cast<std::uint64_t>(num_steps()) + 1);
}

std::int64_t Grid::bitwidth() const {
  QUANTA_CHECK(has_bitwidth(),
               "Grid: bitwidth: expected 2^n codes that are unsigned or two's complement, got "
               "{}..{}",
               qmin_, qmax_);
  return std::countr_zero(static_cast<std::uint64_t>(num_steps()) + 1);
}

bool Grid::is_signed() const {
  QUANTA_CHECK(has_sign(),
               "Grid: signed: expected codes that are unsigned or two's complement, got {}..{}",
               qmin_, qmax_);
  return qmin_ < 0;
}

Grid Grid::with_bitwidth(std::int64_t bitwidth) const {
  return from_bitwidth(bitwidth, is_signed());
}

Grid Grid::with_signed(bool wanted) const {
  if (is_signed() == wanted) return *this;
  const std::int64_t shift = wanted ? centroid() : qmin_;
  return {qmin_ - shift, qmax_ - shift};
}

DType Grid::integer_dtype() const noexcept {
  const auto within = [this](std::int64_t low, std::int64_t high) {
    return qmin_ >= low && qmax_ <= high;
  };
  if (within(0, 255)) return DType::UInt8;
  if (within(-128, 127)) return DType::Int8;
  if (within(-32768, 32767)) return DType::Int16;
  return DType::Int32;
}

}  // namespace quanta::aimet
