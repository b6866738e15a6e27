#include "quanta/fusion/distributed/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace quanta::distributed {
namespace {

constexpr int kMantissaBits = 52;
constexpr std::uint64_t kDigitMask = 0xFFFF'FFFFU;
constexpr std::int64_t kMostPending = std::int64_t{1} << 29U;

}  // namespace

void ExactSum::add(double value) noexcept {
  if (!std::isfinite(value)) {
    ++parts_[std::isnan(value) ? kNaN : value > 0.0 ? kInfinity : kMinusInfinity];
    return;
  }
  if (++pending_ > kMostPending) carry();
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto exponent = static_cast<int>(bits >> kMantissaBits & 0x7FFU);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << kMantissaBits) - 1);
  if (exponent != 0) mantissa |= std::uint64_t{1} << kMantissaBits;
  const int position = exponent == 0 ? 0 : exponent - 1;
  const auto digit = static_cast<std::size_t>(position / kDigitBits);
  const auto shift = static_cast<unsigned>(position % kDigitBits);
  // 53 bits from `shift` on: three digits.
  const std::uint64_t low = mantissa << shift;
  const std::uint64_t high = shift == 0 ? 0 : mantissa >> (64U - shift);
  const std::int64_t sign = value < 0.0 ? -1 : 1;
  parts_[digit] += sign * static_cast<std::int64_t>(low & kDigitMask);
  parts_[digit + 1] += sign * static_cast<std::int64_t>(low >> kDigitBits);
  parts_[digit + 2] += sign * static_cast<std::int64_t>(high);
}

void ExactSum::merge(const ExactSum& other) noexcept {
  ExactSum theirs = other;
  theirs.carry();
  carry();
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i] += theirs.parts_[i];
  pending_ = 1;
}

// Digits 0 .. 2^32 - 1, but for the last one, which has the sign.
void ExactSum::carry() noexcept {
  for (std::size_t i = 0; i + 1 < kDigits; ++i) {
    const std::int64_t up = parts_[i] >> kDigitBits;
    parts_[i] -= up * (std::int64_t{1} << kDigitBits);
    parts_[i + 1] += up;
  }
  pending_ = 0;
}

std::span<std::int64_t> ExactSum::parts() noexcept {
  carry();
  return parts_;
}

double ExactSum::value() const noexcept {
  ExactSum sum = *this;
  const bool up = parts_[kInfinity] != 0;
  const bool down = parts_[kMinusInfinity] != 0;
  if (parts_[kNaN] != 0 || (up && down)) return std::numeric_limits<double>::quiet_NaN();
  if (up || down) return up ? HUGE_VAL : -HUGE_VAL;
  sum.carry();
  const bool negative = sum.parts_[kDigits - 1] < 0;
  if (negative) {
    for (std::size_t i = 0; i < kDigits; ++i) sum.parts_[i] = -sum.parts_[i];
    sum.carry();
  }
  std::size_t top = kDigits;
  while (top > 0 && sum.parts_[top - 1] == 0) --top;
  if (top == 0) return 0.0;
  // The highest 96 bits, as 64 with the first of them set, and whether anything is below.
  const auto digit = [&](std::size_t i) {  // i digits below the top
    return i < top ? static_cast<std::uint64_t>(sum.parts_[top - 1 - i]) : 0;
  };
  std::uint64_t head = digit(0) << 32U | digit(1);
  const auto zeros = static_cast<unsigned>(std::countl_zero(head));
  std::uint64_t rest = digit(2);
  if (zeros != 0) {
    head = head << zeros | rest >> (32U - zeros);
    rest = rest << zeros & kDigitMask;
  }
  bool below = rest != 0;
  for (std::size_t i = 3; i < top && !below; ++i) below = digit(i) != 0;
  // Bit 63 of `head` is 2^exponent.
  const int exponent = static_cast<int>(top) * kDigitBits - 1 - static_cast<int>(zeros) - 1074;
  // Fewer bits are kept where the result is subnormal.
  int kept = kMantissaBits + 1;
  if (exponent < -1022) kept = std::max(0, exponent + 1074 + 1);
  const int dropped = 64 - kept;
  std::uint64_t mantissa = dropped == 64 ? 0 : head >> static_cast<unsigned>(dropped);
  const std::uint64_t half = std::uint64_t{1} << static_cast<unsigned>(dropped - 1);
  const std::uint64_t tail = head & (half - 1);
  const bool above_half = (head & half) != 0 && (tail != 0 || below);
  const bool at_half = (head & half) != 0 && tail == 0 && !below;
  if (above_half || (at_half && (mantissa & 1U) != 0)) ++mantissa;
  const double result = std::ldexp(static_cast<double>(mantissa), exponent - kept + 1);
  return negative ? -result : result;
}

}  // namespace quanta::distributed
