#include "quanta/observers/aimet/analyzer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "quanta/observers/aimet/detail/range_math.h"
#include "quanta/ops/detail/affine_layout.h"
#include "quanta/runtime/check.h"

namespace quanta::aimet {
namespace {

Tensor as_tensor(const std::vector<float>& values, const Dims& shape) {
  return Tensor::from_values(values, shape);
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
  const std::unique_ptr<EncodingAnalyzer> alone = clone();
  alone->reset();
  alone->update(x);
  return alone->compute_range(num_steps, symmetric);
}

// Minimum and maximum ----------------------------------------------------------------------------

MinMaxAnalyzer::MinMaxAnalyzer(const Dims& shape, const Dims& block_size)
    : EncodingAnalyzer(shape, block_size) {}

std::unique_ptr<EncodingAnalyzer> MinMaxAnalyzer::clone() const {
  return std::make_unique<MinMaxAnalyzer>(*this);
}

void MinMaxAnalyzer::reset() {
  min_.clear();
  max_.clear();
}

void MinMaxAnalyzer::update(const Tensor& x) {
  const detail::EntryElements elements("MinMaxAnalyzer", x, shape_, block_size_);
  if (elements.empty()) return;
  if (min_.empty()) {
    min_.assign(elements.entries(), std::numeric_limits<float>::infinity());
    max_.assign(elements.entries(), -std::numeric_limits<float>::infinity());
  }
  elements.for_each([this](std::size_t entry, float value) {
    // NaN stays, as in torch.
    if (value < min_[entry] || value != value) min_[entry] = value;
    if (value > max_[entry] || value != value) max_[entry] = value;
  });
}

Range MinMaxAnalyzer::range_of_data(std::int64_t num_steps, bool symmetric) const {
  std::vector<float> mins;
  std::vector<float> maxs;
  for (std::size_t i = 0; i < min_.size(); ++i) {
    const detail::Ends ends =
        detail::widen({min_[i], max_[i]}, num_steps, symmetric, detail::TwoBitRule::SkipLowestCode);
    mins.push_back(ends.min);
    maxs.push_back(ends.max);
  }
  return {as_tensor(mins, shape_), as_tensor(maxs, shape_)};
}

}  // namespace quanta::aimet
