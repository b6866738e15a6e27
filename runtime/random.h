#pragma once

#include <cstdint>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "quanta/runtime/tensor.h"

/// Random numbers. Threads may share a Generator, the default one too: a call draws its numbers, all
/// those of a tensor, before another thread's does. Which of them is first is left to chance.
namespace quanta {

/// A seeded source of random numbers. The sequence is the same on every machine.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) : sequence_(seed) {}
  /// Copies go on from the same place, each for itself.
  Generator(const Generator& other) : sequence_(other.sequence()) {}
  Generator& operator=(const Generator& other);
  /// Starts anew: the numbers of a new Generator(seed).
  void manual_seed(std::uint64_t seed);
  /// 64 random bits.
  std::uint64_t next();
  /// Uniform in [0, 1), 24 bits.
  float uniform();
  /// Standard normal (Box-Muller).
  float normal();
  /// Uniform integer in [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high);

  // What as many calls of the functions above give, one after the other, and nobody in between.
  void uniform(std::span<float> values);
  void normal(std::span<float> values);
  void integer(std::int64_t low, std::int64_t high, std::span<std::int64_t> values);

  /// Where the sequence stands, as text.
  std::string state() const;
  /// Goes on from there. Throws ArgumentError for a text that state() did not give, and then
  /// changes nothing.
  void set_state(std::string_view state);

 private:
  struct Sequence {
    explicit Sequence(std::uint64_t seed) : engine(seed) {}
    float uniform();
    float normal();
    std::int64_t integer(std::int64_t low, std::int64_t high);

    std::mt19937_64 engine;
    float spare = 0.0F;
    bool has_spare = false;
  };
  Sequence sequence() const;
  void set_sequence(const Sequence& sequence);

  mutable std::mutex mutex_;
  Sequence sequence_;
};

/// The generator of all functions that are given none.
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
