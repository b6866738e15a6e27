#pragma once

#include <cstddef>
#include <vector>

namespace quanta::bench {

/// Operations per second (a multiplication and an addition count as two) that the vector units give
/// in int8 and nothing else: chains of dependent multiply-adds, enough of them to hide the latency,
/// on every thread that ops use. Measured once; the best of several short runs.
struct Int8Peak {
  const char* instruction;  ///< vpdpbusd, or vpmaddwd (int16) without VNNI
  double vector_ops;
  double tile_ops;  ///< AMX tdpbusd; 0 without
};
const Int8Peak& int8_peak();

/// Float32 operations per second (a fused multiply-add counts as two) that vectors of 32 or 64 bytes
/// give and nothing else, in the same way; 0 where the machine has none.
double float_peak(int vector_bytes);

/// Bytes per second that all threads together read from a buffer of `bytes`, again and again: a
/// small one stays in the caches. The median of what fits into `seconds`.
double read_bandwidth(std::size_t bytes, double seconds = 0.3);

/// The same for memcpy between two buffers of `bytes`, read and written ones counted.
double copy_bandwidth(std::size_t bytes, double seconds = 0.3);

/// read_bandwidth for working sets of all sizes, measured in steps of four in about 0.2 s.
class ReadBandwidths {
 public:
  ReadBandwidths();
  /// Of the smallest measured size that holds `bytes`, or of the largest.
  double operator()(std::size_t bytes) const;
  double from_cache() const { return rates_.front(); }
  double from_memory() const { return rates_.back(); }

 private:
  static constexpr std::size_t kSmallest = std::size_t{256} << 10;
  std::vector<double> rates_;
};

}  // namespace quanta::bench
