#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "quanta/runtime/tensor.h"

namespace quanta {

/// A seeded source of random numbers. The sequence is the same on every machine.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) : engine_(seed) {}
  void manual_seed(std::uint64_t seed) { engine_.seed(seed); }
  /// 64 random bits.
  std::uint64_t next() { return engine_(); }
  /// Uniform in [0, 1), 24 bits.
  float uniform();
  /// Standard normal (Box-Muller).
  float normal();
  /// Uniform integer in [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high);

  /// Where the sequence stands, as text, and going on from there. set_state throws ArgumentError
  /// for what state() did not give; then nothing was changed.
  std::string state() const;
  void set_state(std::string_view state);

 private:
  std::mt19937_64 engine_;
  float spare_ = 0.0F;
  bool has_spare_ = false;
};

/// The generator used where none is given. Guard it yourself when many threads draw.
Generator& default_generator();
/// Seeds the default generator.
void manual_seed(std::uint64_t seed);

/// Float32 tensors of the given sizes: uniform in [0, 1), standard normal.
Tensor rand(const Dims& sizes, Generator& generator = default_generator());
Tensor randn(const Dims& sizes, Generator& generator = default_generator());
/// Integers in [low, high), of `dtype` (a plain integer type).
Tensor randint(std::int64_t low, std::int64_t high, const Dims& sizes, DType dtype = DType::Int64,
               Generator& generator = default_generator());

}  // namespace quanta
