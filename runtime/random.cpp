#include "quanta/runtime/random.h"

#include <cmath>
#include <numbers>

#include "quanta/runtime/check.h"

namespace quanta {

float Generator::uniform() {
  constexpr float kStep = 1.0F / 16777216.0F;  // 2^-24
  return static_cast<float>(next() >> 40) * kStep;
}

float Generator::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  constexpr double kStep = 1.0 / 9007199254740992.0;                       // 2^-53
  const double first = (static_cast<double>(next() >> 11) + 1.0) * kStep;  // never 0
  const double second = static_cast<double>(next() >> 11) * kStep;
  const double radius = std::sqrt(-2.0 * std::log(first));
  const double angle = 2.0 * std::numbers::pi * second;
  spare_ = static_cast<float>(radius * std::sin(angle));
  has_spare_ = true;
  return static_cast<float>(radius * std::cos(angle));
}

std::int64_t Generator::integer(std::int64_t low, std::int64_t high) {
  QUANTA_CHECK(low <= high, "Generator::integer: low: expected at most high {}, got {}", high, low);
  const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  const std::uint64_t offset = span == 0 ? next() : next() % span;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
}

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(std::uint64_t seed) { default_generator().manual_seed(seed); }

Tensor rand(const Dims& sizes, Generator& generator) {
  Tensor result = Tensor::empty(sizes);
  auto* data = result.mutable_data<float>();
  for (std::int64_t i = 0; i < result.numel(); ++i) data[i] = generator.uniform();
  return result;
}

Tensor randn(const Dims& sizes, Generator& generator) {
  Tensor result = Tensor::empty(sizes);
  auto* data = result.mutable_data<float>();
  for (std::int64_t i = 0; i < result.numel(); ++i) data[i] = generator.normal();
  return result;
}

Tensor randint(std::int64_t low, std::int64_t high, const Dims& sizes, DType dtype,
               Generator& generator) {
  QUANTA_CHECK(low < high, "randint: low: expected less than high {}, got {}", high, low);
  Tensor result = Tensor::empty(sizes, DType::Int64);
  auto* data = result.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < result.numel(); ++i) data[i] = generator.integer(low, high - 1);
  return result.to(dtype);
}

}  // namespace quanta
