#pragma once

// Private, for .cu files only: two sums of doubles over neighbouring elements in the order that the
// CPU's vectors have: element i adds to lane i % 16.

#include <cstdint>

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {

/// A block of threads takes one stretch of elements. All of them calculate terms, which meet in
/// shared memory; sixteen threads add up those of the first sum, sixteen those of the second.
template <typename T>
struct LaneSums {
  static constexpr int kThreads = 128;
  static constexpr int kLanes = 16;
  static constexpr int kTile = 8 * kThreads;  // elements at a time
  static constexpr int kShared =
      2 * kTile * static_cast<int>(sizeof(T)) + 2 * kLanes * static_cast<int>(sizeof(double));

  struct Terms {
    T first;
    T second;
  };

  /// The lanes of both sums, one behind the other: `kLanes` doubles each.
  static SIMT_DEVICE double* lanes(unsigned char* shared) {
    return reinterpret_cast<double*>(shared);
  }

  /// terms(i) for the elements 0..count-1; afterwards all threads see lanes(shared).
  template <typename Element>
  static SIMT_DEVICE void add(std::int64_t count, unsigned char* shared, Element&& terms) {
    double* const sums = lanes(shared);
    T* const first = reinterpret_cast<T*>(sums + 2 * kLanes);
    T* const second = first + kTile;
    const int t = simt::thread();
    // One warp for each of the sums.
    const bool adds = t % 32 < kLanes && t < 64;
    const T* const mine = t < 32 ? first : second;
    double sum = 0.0;
    for (std::int64_t begin = 0; begin < count; begin += kTile) {
      const std::int64_t left = count - begin;
      const int tile = left < kTile ? static_cast<int>(left) : kTile;
      for (int i = t; i < tile; i += kThreads) {
        const Terms each = terms(begin + i);
        first[i] = each.first;
        second[i] = each.second;
      }
      simt::sync();
      if (adds) {
        for (int i = t % 32; i < tile; i += kLanes) sum += static_cast<double>(mine[i]);
      }
      simt::sync();
    }
    if (adds) sums[t / 32 * kLanes + t % 32] = sum;
    simt::sync();
  }
};

}  // namespace quanta::cuda
