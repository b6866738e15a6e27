#include "quanta/observers/aimet/analyzer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quanta/observers/aimet/detail/range_math.h"
#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/reduce.h"
#include "quanta/observers/detail/state.h"
#include "quanta/runtime/check.h"

namespace quanta::aimet {
namespace {

struct MinMaxAnalyzerOptions {
  Dims shape{};
  Dims block_size{};
};

void describe(MinMaxAnalyzerOptions& options, SettingFields& fields) {
  fields("shape", options.shape);
  fields("block_size", options.block_size);
}

}  // namespace

float minimum_scale(std::int64_t num_steps) {
  return static_cast<float>(std::min(0x1p-23, 0.01 / static_cast<double>(num_steps)));
}

EncodingAnalyzer::EncodingAnalyzer(Dims shape, Dims block_size)
    : shape_(std::move(shape)), block_size_(std::move(block_size)) {
  for (const std::int64_t size : shape_) {
    QUANTA_CHECK(size > 0, "EncodingAnalyzer: shape: expected sizes > 0, got {}", shape_);
  }
  QUANTA_CHECK(block_size_.empty() || block_size_.size() == shape_.size(),
               "EncodingAnalyzer: block_size: expected one entry for each dimension of {}, got {}",
               shape_, block_size_);
}

Range EncodingAnalyzer::compute_range(std::int64_t num_steps, bool symmetric) const {
  QUANTA_CHECK(num_steps > 0, "{}: num_steps: expected a number > 0, got {}", name(), num_steps);
  QUANTA_CHECK(has_data(),
               "{}: expected statistics to be collected before a range is asked for, "
               "got {}",
               name(), "none");
  return range_of_data(num_steps, symmetric);
}

Range EncodingAnalyzer::compute_range_of(const Tensor& x, std::int64_t num_steps,
                                         bool symmetric) const {
  const std::shared_ptr<EncodingAnalyzer> alone = clone();
  alone->reset();
  alone->update(x);
  return alone->compute_range(num_steps, symmetric);
}

std::shared_ptr<EncodingAnalyzer> EncodingAnalyzer::with_shape(const Dims& shape,
                                                               const Dims& block_size) const {
  std::shared_ptr<EncodingAnalyzer> result = of_shape(shape, block_size);
  QUANTA_SUPPORTED(result != nullptr,
                   "{}: with_shape: expected shape {} and block_size {} (a class that overrides "
                   "of_shape can have others), got {} and {}",
                   name(), shape_, block_size_, shape, block_size);
  return result;
}

std::shared_ptr<EncodingAnalyzer> EncodingAnalyzer::of_shape(const Dims&, const Dims&) const {
  return nullptr;
}

// Minimum and maximum ----------------------------------------------------------------------------

MinMaxAnalyzer::MinMaxAnalyzer(const Dims& shape, const Dims& block_size)
    : EncodingAnalyzer(shape, block_size) {}

std::shared_ptr<EncodingAnalyzer> MinMaxAnalyzer::of_shape(const Dims& shape,
                                                           const Dims& block_size) const {
  return std::make_shared<MinMaxAnalyzer>(shape, block_size);
}

Settings MinMaxAnalyzer::settings() const {
  return settings_of(MinMaxAnalyzerOptions{shape_, block_size_});
}

bool MinMaxAnalyzer::has_data() const {
  const std::lock_guard lock(mutex_);
  return !seen_.min.empty();
}

void MinMaxAnalyzer::reset() {
  const std::lock_guard lock(mutex_);
  seen_ = {};
}

Digest MinMaxAnalyzer::digest(const Tensor& x) const {
  require_floating(x, Devices::All);
  if (x.numel() == 0) return {};
  return {.range = quanta::detail::EntryElements(name(), x, shape_, block_size_).range()};
}

bool MinMaxAnalyzer::absorb(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  if (seen_.min.empty()) seen_ = ValueRange::unobserved(digest.range.min.size());
  seen_.widen(digest.range);
  return true;
}

bool MinMaxAnalyzer::join(Digest& digest, const Digest& next) const {
  digest.range.widen(next.range);
  return true;
}

void MinMaxAnalyzer::merge(const Collector& other) {
  require_same_kind(other);
  const auto& source = static_cast<const MinMaxAnalyzer&>(other);
  ValueRange theirs;
  {
    const std::lock_guard lock(source.mutex_);
    theirs = source.seen_;
  }
  if (theirs.min.empty()) return;
  const std::lock_guard lock(mutex_);
  if (seen_.min.empty()) seen_ = ValueRange::unobserved(theirs.min.size());
  seen_.widen(theirs);
}

Range MinMaxAnalyzer::range_of_data(std::int64_t num_steps, bool symmetric) const {
  ValueRange range;
  {
    const std::lock_guard lock(mutex_);
    range = seen_;
  }
  for (std::size_t i = 0; i < range.min.size(); ++i) {
    const detail::Ends ends = detail::widen({range.min[i], range.max[i]}, num_steps, symmetric,
                                            detail::TwoBitRule::SkipLowestCode);
    range.min[i] = ends.min;
    range.max[i] = ends.max;
  }
  return {Tensor::from_values(range.min, shape_), Tensor::from_values(range.max, shape_)};
}

void MinMaxAnalyzer::save_state(StateDict& state, const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  if (!seen_.min.empty()) quanta::detail::save_range(state, prefix, seen_, shape_);
}

void MinMaxAnalyzer::load_state(const StateDict& state, const std::string& prefix) {
  ValueRange loaded;
  if (state.contains(prefix + "min_val")) {
    loaded = quanta::detail::load_range(state, prefix, static_cast<std::size_t>(product(shape_)));
  }
  const std::lock_guard lock(mutex_);
  seen_ = std::move(loaded);
}

}  // namespace quanta::aimet

namespace quanta::detail {

std::vector<CollectorKind> kinds_of_analyzer() {
  using Options = aimet::MinMaxAnalyzerOptions;
  const std::string name = "MinMaxAnalyzer";
  return {collector_kind<Options>(name, [name](const Settings& given) {
    const auto options = options_from<Options>(name, given);
    return std::make_shared<aimet::MinMaxAnalyzer>(options.shape, options.block_size);
  })};
}

}  // namespace quanta::detail
