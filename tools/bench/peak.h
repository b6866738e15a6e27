#pragma once

#include <cstddef>

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

/// Bytes per second that all threads together read from a buffer of `bytes`, again and again: a
/// small one stays in the caches.
double read_bandwidth(std::size_t bytes);

}  // namespace quanta::bench
