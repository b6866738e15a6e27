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
  const Sequence now = sequence();
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << now.engine << ' ' << (now.has_spare ? 1 : 0) << ' '
       << std::bit_cast<std::uint32_t>(now.spare);
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
  Sequence then(0);
  std::istringstream text{std::string(state)};
  text.imbue(std::locale::classic());
  if (!(text >> then.engine)) refuse_state("something else");
  then.has_spare = spare == 1;
  then.spare = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  set_sequence(then);
}

Generator::Sequence Generator::sequence() const {
  const std::lock_guard lock(mutex_);
  return sequence_;
}

void Generator::set_sequence(const Sequence& sequence) {
  const std::lock_guard lock(mutex_);
  sequence_ = sequence;
}

Generator& Generator::operator=(const Generator& other) {
  if (this != &other) set_sequence(other.sequence());
  return *this;
}

void Generator::manual_seed(std::uint64_t seed) { set_sequence(Sequence(seed)); }

std::uint64_t Generator::next() {
  const std::lock_guard lock(mutex_);
  return sequence_.engine();
}

float Generator::uniform() {
  const std::lock_guard lock(mutex_);
  return sequence_.uniform();
}

float Generator::normal() {
  const std::lock_guard lock(mutex_);
  return sequence_.normal();
}

std::int64_t Generator::integer(std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  integer(low, high, {&value, 1});
  return value;
}

void Generator::uniform(std::span<float> values) {
  const std::lock_guard lock(mutex_);
  for (float& value : values) value = sequence_.uniform();
}

void Generator::normal(std::span<float> values) {
  const std::lock_guard lock(mutex_);
  for (float& value : values) value = sequence_.normal();
}

void Generator::integer(std::int64_t low, std::int64_t high, std::span<std::int64_t> values) {
  QUANTA_CHECK(low <= high, "Generator::integer: low: expected at most high {}, got {}", high, low);
  const std::lock_guard lock(mutex_);
  for (std::int64_t& value : values) value = sequence_.integer(low, high);
}

float Generator::Sequence::uniform() {
  constexpr float kStep = 1.0F / 16777216.0F;  // 2^-24
  return static_cast<float>(engine() >> 40) * kStep;
}

float Generator::Sequence::normal() {
  if (has_spare) {
    has_spare = false;
    return spare;
  }
  constexpr double kStep = 1.0 / 9007199254740992.0;                         // 2^-53
  const double first = (static_cast<double>(engine() >> 11) + 1.0) * kStep;  // never 0
  const double second = static_cast<double>(engine() >> 11) * kStep;
  const double radius = std::sqrt(-2.0 * std::log(first));
  const double angle = 2.0 * std::numbers::pi * second;
  spare = static_cast<float>(radius * std::sin(angle));
  has_spare = true;
  return static_cast<float>(radius * std::cos(angle));
}

std::int64_t Generator::Sequence::integer(std::int64_t low, std::int64_t high) {
  const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  const std::uint64_t offset = span == 0 ? engine() : engine() % span;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
}

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(std::uint64_t seed) { default_generator().manual_seed(seed); }

Tensor rand(const Dims& sizes, Generator& generator) {
  Tensor result = Tensor::empty(sizes);
  generator.uniform({result.mutable_data<float>(), static_cast<std::size_t>(result.numel())});
  return result;
}

Tensor randn(const Dims& sizes, Generator& generator) {
  Tensor result = Tensor::empty(sizes);
  generator.normal({result.mutable_data<float>(), static_cast<std::size_t>(result.numel())});
  return result;
}

Tensor randint(std::int64_t low, std::int64_t high, const Dims& sizes, DType dtype,
               Generator& generator) {
  QUANTA_CHECK(low < high, "randint: low: expected less than high {}, got {}", high, low);
  Tensor result = Tensor::empty(sizes, DType::Int64);
  generator.integer(
      low, high - 1,
      {result.mutable_data<std::int64_t>(), static_cast<std::size_t>(result.numel())});
  return result.to(dtype);
}

}  // namespace quanta
