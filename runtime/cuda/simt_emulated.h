#pragma once

// Private: simt.h for the emulated device. Threads that meet are fibers; others are a loop.

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/half.h"

#define SIMT_DEVICE inline
#define SIMT_UNROLL
#define SIMT_LOOP
#define QUANTA_SIMT_BACKEND emulated

namespace quanta::simt {

namespace emulation = ::quanta::cuda::emulation;

inline int thread() { return emulation::position.thread; }
inline int threads() { return emulation::position.threads; }
inline int block_x() { return emulation::position.block_x; }
inline int block_y() { return emulation::position.block_y; }
inline int block_z() { return emulation::position.block_z; }

inline void sync() { emulation::barrier(); }

template <int kBytes>
inline void copy_async(void* shared, const void* global) {
  emulation::require_aligned("copy_async: shared", shared, kBytes);
  emulation::require_aligned("copy_async: global", global, kBytes);
  emulation::copy_later(shared, global, kBytes);
}
inline void commit() { emulation::commit_copies(); }
template <int kPending>
inline void wait() {
  emulation::finish_copies(kPending);
}

inline void load_matrix_x4(std::uint32_t (&r)[4], const void* row) {
  emulation::require_aligned("load_matrix_x4: row", row, 16);
  struct Lane {
    std::uint32_t* r;
    const unsigned char* row;
  } mine{r, static_cast<const unsigned char*>(row)};
  emulation::meet("load_matrix_x4", &mine, [](void* const* lanes) {
    const auto lane = [&](int i) { return static_cast<const Lane*>(lanes[i]); };
    for (int m = 0; m < 4; ++m) {
      // Rows of 16 bytes that share a bank wait for each other.
      int uses[8] = {};
      int most = 0;
      for (int i = 0; i < 8; ++i) {
        most =
            std::max(most, ++uses[reinterpret_cast<std::uintptr_t>(lane(m * 8 + i)->row) / 16 % 8]);
      }
      emulation::count_matrix_load(most);
      for (int i = 0; i < 32; ++i) {
        std::memcpy(&lane(i)->r[m], lane(m * 8 + i / 4)->row + i % 4 * 4, 4);
      }
    }
  });
}

template <int kRows, int kColumns>
inline void multiply_u8s8(std::int32_t (&sums)[kRows][kColumns][4],
                          const std::uint32_t (&a)[kRows][4],
                          const std::uint32_t (&b)[kColumns][2]) {
  struct Lane {
    std::int32_t* sums;
    const std::uint32_t* a;
    const std::uint32_t* b;
  } mine{&sums[0][0][0], &a[0][0], &b[0][0]};
  emulation::meet("multiply_u8s8", &mine, [](void* const* lanes) {
    const auto lane = [&](int i) { return static_cast<const Lane*>(lanes[i]); };
    // Lane l holds rows l / 4 and l / 4 + 8 of a, column l / 4 of b, and of each the four bytes
    // from 4 * (l % 4) and those 16 further on.
    std::int32_t left[kRows * 16][32];
    std::int32_t right[kColumns * 8][32];
    for (int l = 0; l < 32; ++l) {
      for (int i = 0; i < kRows; ++i) {
        for (int e = 0; e < 4; ++e) {
          std::uint8_t bytes[4];
          std::memcpy(bytes, &lane(l)->a[i * 4 + e], 4);
          for (int k = 0; k < 4; ++k) {
            left[i * 16 + l / 4 + e % 2 * 8][l % 4 * 4 + e / 2 * 16 + k] = bytes[k];
          }
        }
      }
      for (int j = 0; j < kColumns; ++j) {
        for (int e = 0; e < 2; ++e) {
          std::int8_t bytes[4];
          std::memcpy(bytes, &lane(l)->b[j * 2 + e], 4);
          for (int k = 0; k < 4; ++k) right[j * 8 + l / 4][l % 4 * 4 + e * 16 + k] = bytes[k];
        }
      }
    }
    for (int l = 0; l < 32; ++l) {
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kColumns; ++j) {
          for (int e = 0; e < 4; ++e) {
            const std::int32_t* row = left[i * 16 + l / 4 + e / 2 * 8];
            const std::int32_t* column = right[j * 8 + l % 4 * 2 + e % 2];
            std::int32_t sum = 0;
            for (int k = 0; k < 32; ++k) sum += row[k] * column[k];
            lane(l)->sums[(i * kColumns + j) * 4 + e] += sum;
          }
        }
      }
    }
  });
}

inline std::int32_t dot_u8s8(std::uint32_t a, std::uint32_t b, std::int32_t sum) {
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<std::int32_t>((a >> (8 * i)) & 0xFFU) *
           static_cast<std::int8_t>((b >> (8 * i)) & 0xFFU);
  }
  return sum;
}

inline std::uint32_t max_bytes(std::uint32_t a, std::uint32_t b) {
  std::uint32_t most = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    most |= std::max(a >> shift & 255U, b >> shift & 255U) << shift;
  }
  return most;
}

inline float half_to_float(std::uint16_t bits) { return math::float16_to_float(bits); }
inline std::uint16_t float_to_half(float value) { return math::float_to_float16(value); }

template <typename T>
inline T shuffle_xor(T value, int mask) {
  struct Lane {
    T value;
    T result;
    int mask;
  } mine{value, value, mask};
  emulation::meet("shuffle_xor", &mine, [](void* const* lanes) {
    for (int i = 0; i < 32; ++i) {
      auto* to = static_cast<Lane*>(lanes[i]);
      to->result = static_cast<const Lane*>(lanes[i ^ to->mask])->value;
    }
  });
  return mine.result;
}

// One thread runs at a time.
inline void atomic_add(std::int32_t* to, std::int32_t value) { *to += value; }
inline void atomic_add(unsigned long long* to, unsigned long long value) { *to += value; }
inline void atomic_min(std::int32_t* to, std::int32_t value) { *to = std::min(*to, value); }
inline void atomic_max(std::int32_t* to, std::int32_t value) { *to = std::max(*to, value); }

template <typename T>
inline T load(const void* from) {
  emulation::require_aligned("load: from", from, sizeof(T));
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
inline void store(void* to, const T& value) {
  emulation::require_aligned("store: to", to, sizeof(T));
  std::memcpy(to, &value, sizeof(T));
}

template <typename Kernel>
void launch(Device, Grid grid, const typename Kernel::Params& params) {
  using Params = typename Kernel::Params;
  static_assert(std::is_trivially_copyable_v<Params>, "params are copied as bytes");
  emulation::launch({.kernel = Kernel::kName,
                     .blocks = {grid.x, grid.y, grid.z},
                     .threads = Kernel::kThreads,
                     .shared = Kernel::kShared,
                     .together = Kernel::kTogether},
                    &params, sizeof(Params), [](const void* given, unsigned char* shared) {
                      Kernel::run(*static_cast<const Params*>(given), shared);
                    });
}

}  // namespace quanta::simt
