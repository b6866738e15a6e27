#include "peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "median_seconds.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/tensor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quanta::bench {
namespace {

/// The most operations per second of `kernel(steps)` on all threads at once, of as many runs as fit
/// into 0.15 s.
template <typename Kernel>
double best_rate(double operations_per_step, const Kernel& kernel) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kSteps = 200000;
  constexpr int kFewestRuns = 5;
  const int threads = get_num_threads();
  double best = 0.0;
  const auto stop = Clock::now() + std::chrono::milliseconds(150);
  for (int run = 0; run < kFewestRuns || Clock::now() < stop; ++run) {
    const auto start = Clock::now();
    parallel_for(threads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) kernel(kSteps);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, operations_per_step * static_cast<double>(kSteps) * threads / seconds);
  }
  return best;
}

#if defined(__x86_64__)

// The chains are written in assembly: a compiler that sees constants folds them away. Sixteen
// accumulators (twelve with AVX2, whose registers are fewer) cover the latency.
__attribute__((target("avx512f,avx512vnni"))) void vnni_chains(std::int64_t steps) {
  __m512i sums[16];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  const __m512i x = _mm512_set1_epi8(3);
  const __m512i w = _mm512_set1_epi8(1);
  for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (__m512i& sum : sums) asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
  }
}

__attribute__((target("avx2"))) void pair_chains(std::int64_t steps) {
  __m256i sums[12];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  const __m256i w = _mm256_set1_epi16(1);
  for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) asm volatile("vpmaddwd %1, %0, %0" : "+x"(sum) : "x"(w));
  }
}

__attribute__((target("avx512f"))) void fma_chains_512(std::int64_t steps) {
  __m512 sums[16];
#pragma GCC unroll 16
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const __m512 x = _mm512_set1_ps(0.5F);
  for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (__m512& sum : sums) asm volatile("vfmadd231ps %1, %1, %0" : "+v"(sum) : "v"(x));
  }
}

__attribute__((target("avx2,fma"))) void fma_chains_256(std::int64_t steps) {
  __m256 sums[12];
#pragma GCC unroll 12
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  const __m256 x = _mm256_set1_ps(0.5F);
  for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) asm volatile("vfmadd231ps %1, %1, %0" : "+x"(sum) : "x"(x));
  }
}

/// What ldtilecfg reads: palette 1, eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14]{};
  std::uint16_t bytes_per_row[16]{};
  std::uint8_t rows[16]{};
};

__attribute__((target("amx-tile,amx-int8"))) void tile_chains(std::int64_t steps) {
  TileConfig config;
  std::fill_n(config.bytes_per_row, 8, std::uint16_t{64});
  std::fill_n(config.rows, 8, std::uint8_t{16});
  // gcc 12 takes it that only the first bytes are read, and drops what was written to the others.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::int64_t i = 0; i < steps; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  _tile_release();
}

/// Whether the processor has AMX int8 and the kernel lets this process use the tiles.
bool may_use_tiles() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kTiles = 1U << 24 | 1U << 25;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTiles) != kTiles) return false;
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Int8Peak measure() {
  constexpr double kVnniStep = 16 * 64 * 2;
  constexpr double kPairStep = 12 * 16 * 2;
  constexpr double kTileStep = 4.0 * 16 * 16 * 64 * 2;
  Int8Peak peak{"none", 0.0, 0.0};
  if (__builtin_cpu_supports("avx512vnni") != 0) {
    peak = {"vpdpbusd", best_rate(kVnniStep, vnni_chains), 0.0};
  } else if (__builtin_cpu_supports("avx2") != 0) {
    peak = {"vpmaddwd", best_rate(kPairStep, pair_chains), 0.0};
  }
  if (may_use_tiles()) peak.tile_ops = best_rate(kTileStep, tile_chains);
  return peak;
}

double measure_floats(int vector_bytes) {
  if (vector_bytes == 64 && __builtin_cpu_supports("avx512f") != 0) {
    return best_rate(16 * 16 * 2, fma_chains_512);
  }
  if (vector_bytes == 32 && __builtin_cpu_supports("fma") != 0) {
    return best_rate(12 * 8 * 2, fma_chains_256);
  }
  return 0.0;
}

#else

Int8Peak measure() { return {"none", 0.0, 0.0}; }
double measure_floats(int) { return 0.0; }

#endif

/// Any bits of the values, all of which have to be read for it.
using Reader = std::int64_t (*)(const std::int64_t* values, std::int64_t count);

std::int64_t read_values(const std::int64_t* values, std::int64_t count) {
  std::int64_t bits = 0;
  for (std::int64_t i = 0; i < count; ++i) bits |= values[i];
  return bits;
}

#if defined(__x86_64__)

// Four vectors at once, so that no load waits for what was done with the one before.
__attribute__((target("avx512f"))) std::int64_t read_wide(const std::int64_t* values,
                                                          std::int64_t count) {
  __m512i bits[4];
  for (__m512i& each : bits) each = _mm512_setzero_si512();
  for (std::int64_t i = 0; i + 32 <= count; i += 32) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      bits[v] = _mm512_or_si512(bits[v], _mm512_loadu_si512(values + i + 8 * v));
    }
  }
  std::int64_t lanes[8];
  _mm512_storeu_si512(
      lanes, _mm512_or_si512(_mm512_or_si512(bits[0], bits[1]), _mm512_or_si512(bits[2], bits[3])));
  return read_values(lanes, 8);
}

Reader fastest_reader() {
  return __builtin_cpu_supports("avx512f") != 0 ? &read_wide : &read_values;
}

#else

Reader fastest_reader() { return &read_values; }

#endif

}  // namespace

double read_bandwidth(std::size_t bytes, double seconds_to_measure) {
  const std::vector<std::int64_t> values(bytes / sizeof(std::int64_t), 1);
  const Reader read = fastest_reader();
  std::atomic<std::int64_t> sink = 0;
  const double seconds = median_seconds(
      [&] {
        parallel_for(static_cast<std::int64_t>(values.size()), 1 << 14,
                     [&](std::int64_t begin, std::int64_t end) {
                       sink.store(read(values.data() + begin, end - begin));
                     });
      },
      seconds_to_measure);
  return static_cast<double>(bytes) / seconds;
}

double copy_bandwidth(std::size_t bytes, double seconds_to_measure) {
  const Tensor src = Tensor::zeros({static_cast<std::int64_t>(bytes)}, DType::UInt8);
  const Tensor dst = Tensor::zeros({static_cast<std::int64_t>(bytes)}, DType::UInt8);
  const auto* from = src.data<std::uint8_t>();
  auto* to = dst.mutable_data<std::uint8_t>();
  const double seconds = median_seconds(
      [&] {
        parallel_for(static_cast<std::int64_t>(bytes), 1 << 20,
                     [&](std::int64_t begin, std::int64_t end) {
                       std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
                     });
      },
      seconds_to_measure);
  return 2.0 * static_cast<double>(bytes) / seconds;
}

ReadBandwidths::ReadBandwidths() {
  constexpr std::size_t kLargest = std::size_t{64} << 20;
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    rates_.push_back(read_bandwidth(bytes, 0.04));
  }
}

double ReadBandwidths::operator()(std::size_t bytes) const {
  std::size_t step = 0;
  while (step + 1 < rates_.size() && (kSmallest << (2 * step)) < bytes) ++step;
  return rates_[step];
}

double float_peak(int vector_bytes) {
  static const double shorter = measure_floats(32);
  static const double longer = measure_floats(64);
  return vector_bytes == 64 ? longer : shorter;
}

const Int8Peak& int8_peak() {
  static const Int8Peak peak = measure();
  return peak;
}

}  // namespace quanta::bench
