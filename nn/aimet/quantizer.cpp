#include "quanta/nn/aimet/quantizer.h"

#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "quanta/ops/detail/elements.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/defined_state.h"

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

// Where operator() waits for the encoding that forward uses.
struct Listener {
  const Quantizer* quantizer;
  Listener* outer;
  EncodedTensor::Kind kind = EncodedTensor::Kind::Plain;
  EncodingPtr encoding{};
};
thread_local Listener* listeners = nullptr;

class ListenScope {
 public:
  explicit ListenScope(Listener* listener) { listeners = listener; }
  ~ListenScope() { listeners = listeners->outer; }
  ListenScope(const ListenScope&) = delete;
  ListenScope& operator=(const ListenScope&) = delete;
};

}  // namespace

// CalibrationScope -------------------------------------------------------------------------------

CalibrationScope::CalibrationScope(Quantizer* quantizer)
    : quantizer_(quantizer), exceptions_(std::uncaught_exceptions()) {}

CalibrationScope::CalibrationScope(CalibrationScope&& other) noexcept
    : quantizer_(std::exchange(other.quantizer_, nullptr)),
      exceptions_(other.exceptions_),
      range_(std::move(other.range_)) {}

CalibrationScope::~CalibrationScope() noexcept(false) {
  if (std::uncaught_exceptions() > exceptions_) cancel();
  finish();
}

void CalibrationScope::cancel() noexcept {
  if (quantizer_ != nullptr) std::exchange(quantizer_, nullptr)->calibrating_ = false;
}

bool CalibrationScope::gather() {
  if (quantizer_ == nullptr) return false;
  range_ = quantizer_->gathered();
  return range_.has_value() || (!quantizer_->can_calibrate() && quantizer_->is_initialized());
}

void CalibrationScope::finish() {
  if (quantizer_ == nullptr) return;
  Quantizer& quantizer = *std::exchange(quantizer_, nullptr);
  quantizer.calibrating_ = false;
  if (!range_.has_value()) range_ = quantizer.gathered();
  if (range_.has_value()) quantizer.take_gathered(*range_);
}

// Quantizer --------------------------------------------------------------------------------------

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
    : Module(other),
      shape_(other.shape_),
      block_size_(other.block_size_),
      warning_(other.warning_) {
  if (other.analyzer_ == nullptr) return;
  analyzer_ = other.analyzer_->clone();
  analyzer_->reset();
}

EncodedTensor Quantizer::result_of(const Tensor& x) const {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", name());
  if (x.numel() == 0) return x;
  if (calibrating_ && can_calibrate()) {
    analyzer_->update(x);
    return apply(x, encoding_of(fitted(range_of_batch(x))));
  }
  const EncodingPtr current = encoding();
  QUANTA_CHECK(current != nullptr,
               "{}: min: expected quantization parameters to be initialized (by compute_encodings, "
               "set_range or load_state_dict), got {}",
               name(), "none");
  return apply(x, current);
}

Tensor Quantizer::forward(const Tensor& x) const {
  const EncodedTensor result = result_of(x);
  if (listeners != nullptr && listeners->quantizer == this) {
    listeners->kind = result.kind();
    listeners->encoding = result.encoding();
  }
  return result.tensor();
}

EncodedTensor Quantizer::operator()(const Tensor& x) const {
  Listener listener{this, listeners};
  const ListenScope scope(&listener);
  Tensor y = Module::operator()(x);
  return {std::move(y), listener.kind, std::move(listener.encoding)};
}

void Quantizer::replace_parameters(std::span<const Tensor> parameters) {
  const std::size_t count = named_parameters().size();
  QUANTA_CHECK(parameters.size() == count,
               "{}: replace_parameters: parameters: expected {}, got {}", name(), count,
               parameters.size());
  put_parameters(parameters);
}

void Quantizer::load_state_and_shape(const StateDict& state, const std::string& prefix) {
  StateDict own;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(prefix)) own.set(name.substr(prefix.size()), tensor);
  }
  quanta::detail::require_defined(own, "load_state_dict");
  // A trial on a copy, so that nothing changes when something is wrong.
  const std::shared_ptr<Quantizer> trial = clone();
  trial->make_room_for(own);
  trial->load_state_dict(own);
  make_room_for(own);
  load_state_dict(own);
}

std::shared_ptr<EncodingAnalyzer> Quantizer::analyzer_for(const Dims& shape,
                                                          const Dims& block_size) const {
  if (analyzer_ == nullptr || (shape == shape_ && block_size == block_size_)) return analyzer_;
  // One for wider groups than the quantizer's own serves any shape that it can be expanded to.
  const bool is_wider = analyzer_->shape() != shape_ && analyzer_->block_size().empty();
  if (is_wider && quanta::detail::broadcasts_to(analyzer_->shape(), shape)) return analyzer_;
  return analyzer_->with_shape(shape, block_size);
}

void Quantizer::use_analyzer_of(const Quantizer& other) {
  QUANTA_CHECK(!calibrating_, "{}: use_analyzer_of: expected no scope, got one that lives", name());
  if (analyzer_ == nullptr || other.analyzer_ == nullptr) return;
  std::shared_ptr<EncodingAnalyzer> analyzer = other.analyzer_for(shape_, block_size_)->clone();
  analyzer->reset();
  analyzer_ = std::move(analyzer);
}

// Calibration ------------------------------------------------------------------------------------

void Quantizer::begin_calibration() {
  QUANTA_CHECK(!calibrating_, "{}: compute_encodings: expected no other scope, got {}", name(),
               "one that lives");
  calibrating_ = true;
  if (analyzer_ != nullptr) analyzer_->reset();
}

CalibrationScope Quantizer::compute_encodings() {
  begin_calibration();
  return CalibrationScope(this);
}

void Quantizer::compute_encodings(const std::function<void()>& run) {
  CalibrationScope scope = compute_encodings();
  run();
  scope.finish();
}

std::optional<Range> Quantizer::gathered() const {
  if (!can_calibrate() || !analyzer_->has_data()) return std::nullopt;
  require_writable();
  return fitted(range_of_all());
}

Range Quantizer::fitted(const Range& range) const {
  const auto fitting = [&](const Tensor& end) {
    QUANTA_CHECK(end.defined() && quanta::detail::broadcasts_to(end.sizes(), shape_),
                 "{}: compute_encodings: expected a range that can be expanded to {}, got {}",
                 name(), shape_,
                 end.defined() ? quanta::to_string(end.sizes()) : "an undefined one");
    QUANTA_CHECK(end.is_floating_point(),
                 "{}: compute_encodings: expected a floating range, got {}", name(), end.dtype());
    return end.detach().to(Device::cpu()).to(DType::Float32).expand(shape_).contiguous();
  };
  return {fitting(range.min), fitting(range.max)};
}

void Quantizer::take_gathered(const Range& range) {
  std::string warning = warning_for(name(), range);
  take_range(range);
  warning_ = std::move(warning);
}

void compute_encodings(nn::Module& model, const std::function<void()>& run) {
  struct Member {
    Quantizer* quantizer;
    std::optional<Range> range{};
  };
  std::vector<Member> members;
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    auto* quantizer = dynamic_cast<Quantizer*>(entry.module);
    if (quantizer == nullptr) continue;
    QUANTA_CHECK(!quantizer->is_calibrating(),
                 "compute_encodings: model: expected no scope that lives, got one at '{}'",
                 entry.path);
    members.push_back({quantizer});
  }
  for (const Member& member : members) member.quantizer->begin_calibration();
  const auto stop = [&] {
    for (const Member& member : members) member.quantizer->calibrating_ = false;
  };
  try {
    run();
    for (Member& member : members) member.range = member.quantizer->gathered();
  } catch (...) {
    stop();
    throw;
  }
  stop();
  for (const Member& member : members) {
    if (member.range.has_value()) member.quantizer->take_gathered(*member.range);
  }
}

}  // namespace quanta::aimet
