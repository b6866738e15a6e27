#include "quanta/ops/matmul/cuda_determinant.h"

#include <cmath>

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

template <typename T>
struct FindDeterminants {
  static constexpr const char* kName = "find_determinants";
  static constexpr int kThreads = 256;
  static constexpr bool kTogether = true;
  using Params = DeterminantParams;

  /// The largest number of a column, the first one of equals.
  struct Pivot {
    double size;
    std::int64_t row;

    SIMT_DEVICE void join(const Pivot& other) {
      if (other.size > size || (other.size == size && other.row < row)) *this = other;
    }
  };
  static constexpr int kMatrix =
      static_cast<int>(Params::kInShared * Params::kInShared * sizeof(double));
  static constexpr int kShared = kMatrix + kThreads * static_cast<int>(sizeof(Pivot));

  /// A NaN on the diagonal stays where it is, and one below it is never chosen, as nothing is
  /// larger or smaller.
  static SIMT_DEVICE Pivot pivot_of(const double* matrix, std::int64_t n, std::int64_t column,
                                    Pivot* parts) {
    const int t = simt::thread();
    const double diagonal = ::fabs(matrix[column * n + column]);
    Pivot pivot{diagonal, column};
    for (std::int64_t row = column + 1 + t; row < n; row += kThreads) {
      pivot.join({::fabs(matrix[row * n + column]), row});
    }
    parts[t] = pivot;
    simt::sync();
    for (int step = kThreads / 2; step > 0; step /= 2) {
      if (t < step) parts[t].join(parts[t + step]);
      simt::sync();
    }
    pivot = parts[0];
    simt::sync();
    return pivot;
  }

  static SIMT_DEVICE double determinant(double* matrix, std::int64_t n, Pivot* parts) {
    const int t = simt::thread();
    double product = 1.0;
    for (std::int64_t column = 0; column < n; ++column) {
      const Pivot pivot = pivot_of(matrix, n, column, parts);
      if (pivot.size == 0.0) return 0.0;
      double* const top = matrix + column * n;
      if (pivot.row != column) {
        double* const other = matrix + pivot.row * n;
        for (std::int64_t k = column + t; k < n; k += kThreads) {
          const double kept = top[k];
          top[k] = other[k];
          other[k] = kept;
        }
        product = -product;
        simt::sync();
      }
      product *= top[column];
      // The column itself stays as it is: all threads read it, and nobody does afterwards.
      const std::int64_t width = n - column - 1;
      for (std::int64_t i = t; i < width * width; i += kThreads) {
        double* const row = matrix + (column + 1 + i / width) * n;
        const std::int64_t k = column + 1 + i % width;
        const double factor = row[column] / top[column];
        row[k] -= factor * top[k];
      }
      simt::sync();
    }
    return product;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const std::int64_t i = simt::block_x();
    const std::int64_t numbers = p.n * p.n;
    double* const matrix =
        p.n <= Params::kInShared ? reinterpret_cast<double*>(shared) : p.work + i * numbers;
    const T* const x = static_cast<const T*>(p.x) + i * numbers;
    for (std::int64_t k = simt::thread(); k < numbers; k += kThreads) matrix[k] = x[k];
    simt::sync();
    const double result = determinant(matrix, p.n, reinterpret_cast<Pivot*>(shared + kMatrix));
    if (simt::thread() == 0) static_cast<T*>(p.out)[i] = static_cast<T>(result);
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void find_determinants(Device device, const DeterminantParams& params) {
  const simt::Grid grid{params.count, 1, 1};
  params.is_double ? simt::launch<FindDeterminants<double>>(device, grid, params)
                   : simt::launch<FindDeterminants<float>>(device, grid, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
