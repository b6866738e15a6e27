#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace quanta::distributed {

/// A sum of doubles without rounding: the same for any order and any division of the numbers, so that
/// partial sums of several ranks or threads make the whole one to the last bit. A fixed-point number
/// as wide as a double's exponents reach (Kulisch), in digits of 32 bits.
///
/// Throws nothing. A plain value: each thread has one of its own, and they are merged.
class ExactSum {
 public:
  /// NaN and infinite values count too: the sum is what adding them in floating point gives.
  void add(double value) noexcept;
  void merge(const ExactSum& other) noexcept;
  /// The double nearest to the sum (ties to even); infinite beyond the largest one.
  double value() const noexcept;

  /// The sum as whole numbers: those of several sums added up are those of their sum, up to 2^28 of
  /// them. Normalizes the digits.
  std::span<std::int64_t> parts() noexcept;

 private:
  static constexpr int kDigitBits = 32;
  // Bit 0 is 2^-1074, the smallest double; the largest one begins below 2^1024, and 2^64 of them are
  // below 2^1088.
  static constexpr std::size_t kDigits = (1074 + 1088) / kDigitBits + 1;
  static constexpr std::size_t kNaN = kDigits;
  static constexpr std::size_t kInfinity = kDigits + 1;
  static constexpr std::size_t kMinusInfinity = kDigits + 2;

  void carry() noexcept;

  std::array<std::int64_t, kDigits + 3> parts_{};
  // How many numbers the digits have taken since the last carry: below 2^30, so that none overflows.
  std::int64_t pending_ = 0;
};

}  // namespace quanta::distributed
