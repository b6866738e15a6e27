#include "quanta/observers/aimet/quantizer.h"

#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "quanta/runtime/check.h"

namespace quanta::aimet {
namespace {

// Values within 5 % of what float32 can hold are as suspicious as infinite ones.
std::string warning_for(std::string_view name, const Range& range) {
  constexpr float kSuspicious = 0.95F * std::numeric_limits<float>::max();
  for (const Tensor& ends : {range.min, range.max}) {
    for (const float value : ends.to_float_vector()) {
      if (std::isfinite(value) && std::fabs(value) < kSuspicious) continue;
      return fmt::format(
          "{}: compute_encodings: the range {} is infinite, NaN or near the limits "
          "of float32",
          name, value);
    }
  }
  return {};
}

}  // namespace

CalibrationScope::CalibrationScope(Quantizer* quantizer)
    : quantizer_(quantizer), exceptions_(std::uncaught_exceptions()) {}

CalibrationScope::CalibrationScope(CalibrationScope&& other) noexcept
    : quantizer_(std::exchange(other.quantizer_, nullptr)), exceptions_(other.exceptions_) {}

CalibrationScope::~CalibrationScope() {
  if (quantizer_ == nullptr) return;
  if (std::uncaught_exceptions() > exceptions_) {
    quantizer_->calibrating_ = false;
    return;
  }
  try {
    finish();
  } catch (...) {
    // Documented: who wants to know calls finish().
  }
}

void CalibrationScope::finish() {
  if (quantizer_ == nullptr) return;
  std::exchange(quantizer_, nullptr)->end_calibration();
}

Quantizer::Quantizer(Dims shape, Dims block_size, std::shared_ptr<EncodingAnalyzer> analyzer)
    : shape_(std::move(shape)), block_size_(std::move(block_size)), analyzer_(std::move(analyzer)) {
  QUANTA_CHECK(block_size_.empty() || block_size_.size() == shape_.size(),
               "Quantizer: block_size: expected one entry for each dimension of {}, got {}", shape_,
               block_size_);
  for (const std::int64_t block : block_size_) {
    QUANTA_CHECK(block == -1 || block > 0,
                 "Quantizer: block_size: expected -1 or entries > 0, got {}", block_size_);
  }
}

Quantizer::Quantizer(const Quantizer& other)
    : shape_(other.shape_), block_size_(other.block_size_), warning_(other.warning_) {
  if (other.analyzer_ == nullptr) return;
  analyzer_ = other.analyzer_->clone();
  analyzer_->reset();
}

EncodedTensor Quantizer::forward(const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", name());
  if (x.numel() == 0) return x;
  if (calibrating_ && can_calibrate()) {
    analyzer_->update(x);
    return apply(x, encoding_of(range_of_batch(x)));
  }
  const EncodingPtr current = encoding();
  QUANTA_CHECK(current != nullptr,
               "{}: min: expected quantization parameters to be initialized (by compute_encodings, "
               "set_range or load_state), got {}",
               name(), "none");
  return apply(x, current);
}

CalibrationScope Quantizer::compute_encodings() {
  QUANTA_CHECK(!calibrating_, "{}: compute_encodings: expected no other scope, got {}", name(),
               "one that lives");
  calibrating_ = true;
  if (analyzer_ != nullptr) analyzer_->reset();
  return CalibrationScope(this);
}

void Quantizer::compute_encodings(const std::function<void()>& run) {
  CalibrationScope scope = compute_encodings();
  run();
  scope.finish();
}

void Quantizer::end_calibration() {
  calibrating_ = false;
  if (!can_calibrate() || !analyzer_->has_data()) return;
  const Range range = range_of_all();
  warning_ = warning_for(name(), range);
  take_range(range);
}

}  // namespace quanta::aimet
