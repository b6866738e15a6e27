#include "quanta/runtime/random.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <numbers>
#include <sstream>
#include <tuple>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

// Numbers of an engine's text in libstdc++: its words, and how many of them are used up.
constexpr std::size_t kWords = std::mt19937_64::state_size;

[[noreturn]] void refuse_state(std::string_view why) {
  throw ArgumentError(
      fmt::format("Generator::set_state: state: expected the text that state() gave, got {}", why));
}

}  // namespace

std::string Generator::state() const {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << engine_ << ' ' << (has_spare_ ? 1 : 0) << ' ' << std::bit_cast<std::uint32_t>(spare_);
  return text.str();
}

void Generator::set_state(std::string_view state) {
  // Read by hand: the library's own reader believes whatever position it is told.
  std::array<std::uint64_t, kWords + 3> numbers{};
  const char* at = state.data();
  const char* end = at + state.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != ' ')) refuse_state("too few numbers");
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc()) refuse_state("something that is no number");
    at = next;
  }
  if (at != end) refuse_state("more numbers");
  const auto [used, spare, bits] =
      std::tuple(numbers[kWords], numbers[kWords + 1], numbers[kWords + 2]);
  if (used > kWords || spare > 1 || bits > 0xFFFFFFFFU) refuse_state("numbers out of range");
  std::mt19937_64 engine;
  std::istringstream text{std::string(state)};
  text.imbue(std::locale::classic());
  if (!(text >> engine)) refuse_state("something else");
  engine_ = engine;
  has_spare_ = spare == 1;
  spare_ = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

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
