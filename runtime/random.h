#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "quanta/runtime/tensor.h"

/// Random numbers. A Generator is for one thread at a time, the default one too: guard it where
/// many threads draw.
namespace quanta {

/// A seeded source of random numbers. The sequence is the same on every machine.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) : engine_(seed) {}
  /// Starts anew: the numbers of a new Generator(seed).
  void manual_seed(std::uint64_t seed) { *this = Generator(seed); }
  /// 64 random bits.
  std::uint64_t next() { return engine_(); }
  /// Uniform in [0, 1), 24 bits.
  float uniform();
  /// Standard normal (Box-Muller).
  float normal();
  /// Uniform integer in [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high);

  /// Where the sequence stands, as text.
  std::string state() const;
  /// Goes on from there. Throws ArgumentError for a text that state() did not give, and then
  /// changes nothing.
  void set_state(std::string_view state);

 private:
  std::mt19937_64 engine_;
  float spare_ = 0.0F;
  bool has_spare_ = false;
};

/// The generator of all functions that are given none. Threads have to guard it.
Generator& default_generator();
/// Seeds the default generator.
void manual_seed(std::uint64_t seed);

// Float32 tensors of the given sizes: rand is uniform in [0, 1), randn standard normal. Throw
// ArgumentError for negative sizes.
Tensor rand(const Dims& sizes, Generator& generator = default_generator());
Tensor randn(const Dims& sizes, Generator& generator = default_generator());
/// Integers in [low, high), of `dtype`. Throws ArgumentError unless low < high.
Tensor randint(std::int64_t low, std::int64_t high, const Dims& sizes, DType dtype = DType::Int64,
               Generator& generator = default_generator());

}  // namespace quanta
