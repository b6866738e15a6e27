#include "quanta/observers/detail/histogram.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <type_traits>

#include "quanta/observers/cpu/observer_kernels.h"
#include "quanta/observers/cuda/observer_kernels.h"
#include "quanta/observers/detail/state.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/parallel.h"

namespace quanta::detail {
namespace {

constexpr std::int64_t kGrain = 1 << 16;
// Four tables of counters up to this size stay within the first-level cache.
constexpr std::int64_t kBinsForFourTables = 2048;
// Keeps a 32-bit counter from running over.
constexpr std::int64_t kLongestRun = std::int64_t{1} << 30;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// All values lie in [low, high].
void count_inside(std::span<const float> x, float low, float high,
                  std::vector<std::int64_t>& totals) {
  const auto bins = static_cast<std::int64_t>(totals.size());
  const auto count = static_cast<std::int64_t>(x.size());
  const float width = high - low;
  if (width == 0.0F) {
    totals.front() += count;
    return;
  }
  if (const BinScale scale = bin_scale(low, high, bins); scale.is_wide) {
    for (const float value : x) ++totals[at(bin_of(value, scale))];
    return;
  }

  const cpu::BinRule rule{low, width, static_cast<std::int32_t>(bins)};
  const std::int32_t tables = bins <= kBinsForFourTables ? 4 : 1;
  std::mutex mutex;
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint32_t> counts(at(bins * tables));
    for (std::int64_t start = begin; start < end; start += kLongestRun) {
      std::fill(counts.begin(), counts.end(), 0U);
      cpu::count_bins(x.data() + start, std::min(kLongestRun, end - start), rule, tables,
                      counts.data());
      const std::lock_guard lock(mutex);
      for (std::int32_t table = 0; table < tables; ++table) {
        const std::uint32_t* part = counts.data() + table * bins;
        for (std::int64_t i = 0; i < bins; ++i) totals[at(i)] += part[i];
      }
    }
  });
}

float counted_on(float count, std::int64_t more) {
  constexpr auto kExact = static_cast<double>(std::int64_t{1} << 24);
  const double sum = static_cast<double>(count) + static_cast<double>(more);
  if (sum <= kExact && std::trunc(count) == count) return static_cast<float>(sum);
  for (; more > 0 && count + 1.0F != count; --more) count += 1.0F;
  return count;
}

template <typename Count>
Tensor counts_tensor(const std::vector<Count>& values, const Dims& sizes) {
  if constexpr (std::is_same_v<Count, float>) {
    return Tensor::from_values(values, sizes);
  } else {
    return Tensor::from_int64(values).reshape(sizes);
  }
}

template <typename Count>
std::vector<Count> read_counts(const StateDict& state, const std::string& name) {
  std::vector<Count> counts;
  if constexpr (std::is_same_v<Count, float>) {
    counts = tensor_state(state, name).to_float_vector();
  } else {
    const Tensor& saved = require_state(state, name);
    QUANTA_CHECK(saved.dtype() == DType::Int64, "load_state_dict: {}: expected Int64, got {}", name,
                 saved.dtype());
    counts = saved.to_int64_vector();
  }
  const bool counted = std::all_of(counts.begin(), counts.end(), [](Count value) {
    return value >= Count{0} && std::isfinite(static_cast<double>(value));
  });
  QUANTA_CHECK(counted, "load_state_dict: {}: expected finite counts >= 0", name);
  return counts;
}

Dims with_last(Dims shape, std::size_t size) {
  shape.push_back(static_cast<std::int64_t>(size));
  return shape;
}

// The sizes behind those of `shape`: how many there are for each entry.
std::int64_t read_length(const StateDict& state, const std::string& name, const Dims& shape) {
  const Dims& sizes = require_state(state, name).sizes();
  const bool fits =
      sizes.size() == shape.size() + 1 && std::equal(shape.begin(), shape.end(), sizes.begin());
  QUANTA_CHECK(fits && sizes.back() > 0,
               "load_state_dict: {}: expected the sizes {} and one more, got {}", name, shape,
               sizes);
  return sizes.back();
}

void require_rising(const std::string& name, std::span<const float> edges) {
  const bool rising =
      std::is_sorted(edges.begin(), edges.end()) &&
      std::all_of(edges.begin(), edges.end(), [](float edge) { return std::isfinite(edge); });
  QUANTA_CHECK(rising, "load_state_dict: {}: expected finite edges that rise", name);
}

// Counts the elements of a tensor on a CUDA device by bins that the parameters describe.
std::vector<std::int64_t> count_on_device(const Tensor& dense, cuda::CountBinsParams params) {
  std::vector<std::int64_t> counts(at(params.scale.bins));
  const Device device = dense.device();
  const cuda::Buffer there(device, counts.data(), counts.size() * sizeof(std::int64_t));
  constexpr std::int64_t kOfBlock = 4096;  // for which another block pays
  constexpr std::int64_t kMostBlocks = 264;
  params.floats = reinterpret_cast<const float*>(dense.device_ptr());
  params.count = dense.numel();
  params.blocks =
      static_cast<int>(std::clamp<std::int64_t>(dense.numel() / kOfBlock, 1, kMostBlocks));
  params.counts = there.as<unsigned long long>();
  cuda::count_bins(device, params);
  cuda::driver(device).copy_to_host(counts.data(), there.as<void>(), there.bytes());
  return counts;
}

}  // namespace

BinScale bin_scale(float low, float high, std::int64_t bins) {
  const float width = high - low;
  return {low, high, width, bins, !std::isfinite(width * static_cast<float>(bins))};
}

std::vector<std::int64_t> count_values(std::span<const float> x, std::int64_t bins, float low,
                                       float high, Outside outside) {
  std::vector<std::int64_t> counts(at(bins));
  if (outside == Outside::Absent) {
    count_inside(x, low, high, counts);
    return counts;
  }
  std::vector<float> inside;
  inside.reserve(x.size());
  std::int64_t below = 0;
  std::int64_t above = 0;
  for (const float value : x) {
    if (value >= low && value <= high) inside.push_back(value);
    below += value < low ? 1 : 0;
    above += value > high ? 1 : 0;
  }
  count_inside(inside, low, high, counts);
  if (outside == Outside::AtEnds) {
    counts.front() += below;
    counts.back() += above;
  }
  return counts;
}

std::vector<std::int64_t> count_values(const Tensor& dense, std::int64_t bins, float low,
                                       float high, Outside outside) {
  if (dense.device().is_cpu()) {
    return count_values({dense.data<float>(), at(dense.numel())}, bins, low, high, outside);
  }
  cuda::CountBinsParams params;
  params.scale = bin_scale(low, high, bins);
  params.counts_ends = outside == Outside::AtEnds;
  return count_on_device(dense, params);
}

std::vector<std::int64_t> count_between(std::span<const float> x, std::span<const float> edges) {
  const auto bins = static_cast<std::int64_t>(edges.size()) - 1;
  std::vector<std::int64_t> counts(at(bins));
  for (const float value : x) {
    const std::int64_t bin = bin_between(value, edges.data(), bins);
    if (bin >= 0) ++counts[at(bin)];
  }
  return counts;
}

std::vector<std::int64_t> count_between(const Tensor& dense, std::span<const float> edges) {
  const cuda::Buffer there(dense.device(), edges.data(), edges.size_bytes());
  cuda::CountBinsParams params;
  params.scale.bins = static_cast<std::int64_t>(edges.size()) - 1;
  params.edges = there.as<float>();
  return count_on_device(dense, params);
}

void add_counts(std::vector<float>& counts, const std::vector<std::int64_t>& batch) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = counted_on(counts[i], batch[i]);
}

template <typename Count>
void save_histograms(StateDict& state, const std::string& prefix,
                     std::span<const Histogram<Count>> histograms, const Dims& shape) {
  if (histograms.empty()) return;
  std::vector<Count> counts;
  std::vector<float> edges;
  ValueRange range;
  for (const Histogram<Count>& each : histograms) {
    counts.insert(counts.end(), each.counts.begin(), each.counts.end());
    edges.insert(edges.end(), each.edges.begin(), each.edges.end());
    range.min.push_back(each.min);
    range.max.push_back(each.max);
  }
  const Histogram<Count>& first = histograms.front();
  state.set(prefix + "histogram", counts_tensor(counts, with_last(shape, first.counts.size())));
  save_range(state, prefix, range, shape);
  if (first.edges.empty()) return;
  state.set(prefix + "bin_edges", Tensor::from_values(edges, with_last(shape, first.edges.size())));
}

template <typename Count>
std::vector<Histogram<Count>> load_histograms(const StateDict& state, const std::string& prefix,
                                              const Dims& shape) {
  const std::string name = prefix + "histogram";
  const std::string edges_name = prefix + "bin_edges";
  const auto bins = read_length(state, name, shape);
  const std::vector<Count> counts = read_counts<Count>(state, name);
  const std::size_t entries = at(product(shape));
  const ValueRange range = load_range(state, prefix, entries);
  std::int64_t edge_count = 0;
  std::vector<float> edges;
  if (state.contains(edges_name)) {
    edge_count = read_length(state, edges_name, shape);
    QUANTA_CHECK(edge_count > bins, "load_state_dict: {}: expected more than {} edges, got {}",
                 edges_name, bins, edge_count);
    edges = tensor_state(state, edges_name).to_float_vector();
  }
  std::vector<Histogram<Count>> result;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(entries); ++i) {
    Histogram<Count> one;
    one.counts.assign(counts.begin() + i * bins, counts.begin() + (i + 1) * bins);
    one.edges.assign(edges.begin() + i * edge_count, edges.begin() + (i + 1) * edge_count);
    require_rising(edges_name, one.edges);
    one.min = range.min[at(i)];
    one.max = range.max[at(i)];
    const bool finite = std::isfinite(one.min) && std::isfinite(one.max) && one.min <= one.max;
    QUANTA_CHECK(!one.has_data() || finite,
                 "load_state_dict: {}min_val, max_val: expected finite min_val <= max_val, got {}, "
                 "{}",
                 prefix, one.min, one.max);
    result.push_back(std::move(one));
  }
  return result;
}

template void save_histograms<float>(StateDict&, const std::string&,
                                     std::span<const Histogram<float>>, const Dims&);
template void save_histograms<std::int64_t>(StateDict&, const std::string&,
                                            std::span<const Histogram<std::int64_t>>, const Dims&);
template std::vector<Histogram<float>> load_histograms<float>(const StateDict&, const std::string&,
                                                              const Dims&);
template std::vector<Histogram<std::int64_t>> load_histograms<std::int64_t>(const StateDict&,
                                                                            const std::string&,
                                                                            const Dims&);

}  // namespace quanta::detail
