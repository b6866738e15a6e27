#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace quanta::api_fuzz {

/// Random numbers that follow from a seed alone, on every machine.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t call) : engine_(seed * 0x9E3779B97F4A7C15ULL + call) {}

  std::uint64_t bits() { return engine_(); }
  /// 0 .. end - 1; 0 for an `end` of 0.
  std::uint64_t below(std::uint64_t end) { return end == 0 ? 0 : engine_() % end; }
  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(below(static_cast<std::uint64_t>(end < 0 ? 0 : end)));
  }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  template <typename T>
  const T& among(std::span<const T> values) {
    return values[below(static_cast<std::uint64_t>(values.size()))];
  }
  template <typename T, std::size_t count>
  const T& among(const std::array<T, count>& values) {
    return among(std::span<const T>(values));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace quanta::api_fuzz
