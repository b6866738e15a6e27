#include "quanta/fusion/accuracy/detail/gptq_columns.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "quanta/fusion/accuracy/detail/cholesky.h"
#include "quanta/fusion/accuracy/detail/layer_matrix.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/matmul.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"

namespace quanta::accuracy {
namespace {

// Positions of a layer that are looked at together.
constexpr std::int64_t kPatches = 4096;
// Rows that go through a block of columns together, so that its factors stay in the cache.
constexpr std::int64_t kRows = 16;

}  // namespace

std::vector<std::vector<double>> input_hessians(nn::Module& model, const WeightedLayer& layer,
                                                const Calibrate& run) {
  const LayerMatrix matrix(layer);
  const auto n = static_cast<std::size_t>(matrix.columns());
  std::vector<std::vector<double>> sums(static_cast<std::size_t>(matrix.groups()),
                                        std::vector<double>(n * n));
  std::int64_t positions = 0;
  std::int64_t waiting = 0;
  std::vector<Tensor> parts;  // of short calls, many of which make one product
  const auto add_up = [&] {
    const Tensor patches = parts.size() == 1 ? parts[0] : cat(parts, 1);
    const Tensor products = bmm(patches.transpose(1, 2).contiguous(), patches).contiguous();
    const std::span<const float> values = products.span<float>();
    for (std::size_t g = 0; g < sums.size(); ++g) {
      const float* const group = values.data() + g * n * n;
      for (std::size_t i = 0; i < n * n; ++i) sums[g][i] += static_cast<double>(group[i]);
    }
    positions += waiting;
    waiting = 0;
    parts.clear();
  };
  for_all_patches(model, layer, run, kPatches, [&](const Tensor& patches) {
    parts.push_back(patches);
    waiting += patches.size(1);
    if (waiting >= kPatches) add_up();
  });
  if (waiting > 0) add_up();
  QUANTA_CHECK(positions > 0, "gptq: data.run: expected data that reaches '{}', got none",
               layer.path);
  for (std::vector<double>& sum : sums) {
    for (double& value : sum) value *= 2.0 / static_cast<double>(positions);
  }
  return sums;
}

void check(const GptqSettings& settings) {
  QUANTA_CHECK(std::isfinite(settings.percdamp) && settings.percdamp >= 0.0,
               "gptq: percdamp: expected at least 0, got {}", settings.percdamp);
  QUANTA_CHECK(settings.block_size >= 1, "gptq: block_size: expected at least 1, got {}",
               settings.block_size);
}

GptqColumns::GptqColumns(std::span<const double> hessian, std::span<double> weight,
                         const GptqSettings& settings, const std::string& path) {
  const auto n = static_cast<std::size_t>(std::lround(std::sqrt(hessian.size())));
  block_size_ = std::min(static_cast<std::size_t>(settings.block_size), n);
  std::vector<double> diagonal(n);
  for (std::size_t j = 0; j < n; ++j) {
    diagonal[j] = hessian[j * n + j];
    if (diagonal[j] != 0.0) continue;
    diagonal[j] = 1.0;
    for (std::size_t i = j; i < weight.size(); i += n) weight[i] = 0.0;
  }
  order_.resize(n);
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  if (settings.act_order) {
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return diagonal[a] > diagonal[b]; });
  }
  const double mean =
      std::accumulate(diagonal.begin(), diagonal.end(), 0.0) / static_cast<double>(n);
  upper_.resize(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t from = order_[i];
    for (std::size_t j = 0; j < n; ++j) upper_[i * n + j] = hessian[from * n + order_[j]];
    upper_[i * n + i] = diagonal[from] + settings.percdamp * mean;
  }
  QUANTA_CHECK(upper_factor_of_inverse(upper_, n),
               "gptq: percdamp: expected one with which the Hessian of '{}' is positive definite "
               "(more data helps too), got {}",
               path, settings.percdamp);
}

void GptqColumns::round(std::size_t begin, std::size_t end, std::span<double> weight,
                        const Round& round) const {
  const std::size_t n = order_.size();
  const auto rows = static_cast<std::int64_t>(weight.size() / n);
  parallel_for(rows, kRows, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> left(n * kRows);  // rows in the order of the columns
    std::vector<double> errors(block_size_ * kRows);
    for (auto row = static_cast<std::size_t>(first); row < static_cast<std::size_t>(last);) {
      const std::size_t count =
          std::min(static_cast<std::size_t>(kRows), static_cast<std::size_t>(last) - row);
      for (std::size_t r = 0; r < count; ++r) {
        const double* const from = weight.data() + (row + r) * n;
        for (std::size_t k = begin; k < n; ++k) left[r * n + k] = from[order_[k]];
      }
      for (std::size_t start = begin; start < end; start += block_size_) {
        const std::size_t stop = std::min(start + block_size_, end);
        for (std::size_t r = 0; r < count; ++r) {
          double* const values = left.data() + r * n;
          for (std::size_t j = start; j < stop; ++j) {
            const double* const upper = upper_.data() + j * n;
            const double rounded = round(row + r, order_[j], values[j]);
            const double error = (values[j] - rounded) / upper[j];
            errors[r * block_size_ + (j - start)] = error;
            values[j] = rounded;
            for (std::size_t k = j + 1; k < stop; ++k) values[k] -= error * upper[k];
          }
        }
        for (std::size_t j = start; j < stop; ++j) {
          const double* const upper = upper_.data() + j * n;
          for (std::size_t r = 0; r < count; ++r) {
            double* const values = left.data() + r * n;
            const double error = errors[r * block_size_ + (j - start)];
            for (std::size_t k = stop; k < n; ++k) values[k] -= error * upper[k];
          }
        }
      }
      for (std::size_t r = 0; r < count; ++r) {
        double* const to = weight.data() + (row + r) * n;
        for (std::size_t k = begin; k < n; ++k) to[order_[k]] = left[r * n + k];
      }
      row += count;
    }
  });
}

double code_of(double value, float scale, double zero_point, double low, double high) {
  return std::clamp(std::nearbyint(value / static_cast<double>(scale)) + zero_point, low, high);
}

double value_of(double code, float scale, double zero_point) {
  return static_cast<double>(static_cast<float>(code - zero_point) * scale);
}

}  // namespace quanta::accuracy
