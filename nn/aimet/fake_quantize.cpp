#include "quanta/nn/aimet/fake_quantize.h"

#include <utility>

#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr std::string_view kOp = "AimetFakeQuantize";
constexpr const char* kQuantizerPrefix = "quantizer.";

// The only axis along which there are several scales; -1: there is one scale, -2: several axes.
std::int64_t channel_axis(const aimet::Quantizer& quantizer) {
  std::int64_t axis = -1;
  const Dims& shape = quantizer.shape();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (axis >= 0) return -2;
    axis = static_cast<std::int64_t>(d);
  }
  return axis;
}

}  // namespace

AimetFakeQuantize::AimetFakeQuantize(const aimet::Quantizer& quantizer)
    : model_(quantizer.clone()), quantizer_(quantizer.clone()) {
  describe();
}

void AimetFakeQuantize::set_quantizer(const aimet::Quantizer& quantizer) {
  const std::lock_guard lock(mutex_);
  drop_scope();
  model_ = quantizer.clone();
  quantizer_ = quantizer.clone();
  describe();
}

// What convert has to know.
void AimetFakeQuantize::describe() {
  dtype_ = DType::Float32;
  qscheme_ = QScheme::PerTensorAffine;
  range_ = {0, 255};
  const auto* affine = dynamic_cast<const aimet::AffineQuantizer*>(quantizer_.get());
  const std::int64_t axis = channel_axis(*quantizer_);
  if (affine == nullptr || axis == -2 || !quantizer_->block_size().empty()) return;
  const std::int64_t qmin = affine->grid().qmin();
  const std::int64_t qmax = affine->grid().qmax();
  if (qmin >= 0 && qmax <= 255) dtype_ = DType::QUInt8;
  if (qmin >= -128 && qmax <= 127) dtype_ = DType::QInt8;
  range_ = {qmin, qmax};
  const bool symmetric = affine->symmetric();
  if (axis < 0) {
    qscheme_ = symmetric ? QScheme::PerTensorSymmetric : QScheme::PerTensorAffine;
  } else {
    qscheme_ = symmetric ? QScheme::PerChannelSymmetric : QScheme::PerChannelAffine;
  }
}

AimetFakeQuantize::AimetFakeQuantize(const AimetFakeQuantize& other)
    : FakeQuantizeBase(other), model_(other.model_) {
  other.end_scope();  // what was gathered so far is part of the copy
  const std::lock_guard lock(other.mutex_);
  quantizer_ = other.quantizer_->clone();
}

AimetFakeQuantize::~AimetFakeQuantize() noexcept {
  if (scope_) scope_->cancel();
}

ObserverFactory AimetFakeQuantize::with_args(std::string name, const aimet::Quantizer& quantizer) {
  const std::shared_ptr<const aimet::Quantizer> model = quantizer.clone();
  return {"AimetFakeQuantize(" + std::move(name) + ")",
          [model] { return std::make_shared<AimetFakeQuantize>(*model); }};
}

std::shared_ptr<Collector> AimetFakeQuantize::copy() const {
  return std::shared_ptr<AimetFakeQuantize>(new AimetFakeQuantize(*this));
}

void AimetFakeQuantize::end_scope() const {
  const std::lock_guard lock(mutex_);
  if (!scope_) return;
  aimet::CalibrationScope scope = std::move(*scope_);
  scope_.reset();
  scope.finish();
}

void AimetFakeQuantize::drop_scope() {
  if (scope_) scope_->cancel();
  scope_.reset();
}

bool AimetFakeQuantize::gather() {
  const std::lock_guard lock(mutex_);
  return scope_ && scope_->gather();
}

void AimetFakeQuantize::cancel_scope() {
  const std::lock_guard lock(mutex_);
  drop_scope();
}

void AimetFakeQuantize::begin_scope() {
  if (!scope_) scope_.emplace(quantizer_->compute_encodings());
}

DigestKind AimetFakeQuantize::digests() const {
  const std::lock_guard lock(mutex_);
  const auto& analyzer = quantizer_->analyzer();
  return analyzer ? analyzer->digests() : DigestKind::Alone;
}

Digest AimetFakeQuantize::digest(const Tensor& x) const {
  const std::lock_guard lock(mutex_);
  const auto& analyzer = quantizer_->analyzer();
  return analyzer ? analyzer->digest(x.detach()) : Digest{.passed = true};
}

bool AimetFakeQuantize::absorb(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  begin_scope();
  const auto& analyzer = quantizer_->analyzer();
  return !analyzer || analyzer->absorb(digest);
}

bool AimetFakeQuantize::join(Digest& digest, const Digest& next) const {
  const std::lock_guard lock(mutex_);
  const auto& analyzer = quantizer_->analyzer();
  return !analyzer || analyzer->join(digest, next);
}

void AimetFakeQuantize::move_frame(const ValueRange& range) {
  if (digests() != DigestKind::Framed) throw_without_digests("move_frame");
  const std::lock_guard lock(mutex_);
  begin_scope();
  quantizer_->analyzer()->move_frame(range);
}

void AimetFakeQuantize::save_gathered(StateDict& state, const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  if (!scope_) return;
  state.set(prefix + "is_gathering", Tensor::ones({1}, DType::UInt8));
  if (quantizer_->analyzer()) quantizer_->analyzer()->save_state(state, prefix + "analyzer.");
}

void AimetFakeQuantize::load_gathered(const StateDict& state, const std::string& prefix) {
  const std::lock_guard lock(mutex_);
  drop_scope();
  const auto& analyzer = quantizer_->analyzer();
  if (analyzer) analyzer->reset();
  if (!state.contains(prefix + "is_gathering")) return;
  begin_scope();
  if (analyzer) analyzer->load_state(state, prefix + "analyzer.");
}

void AimetFakeQuantize::update(const Tensor& x) {
  if (listener_) return FakeQuantizeBase::update(x);  // the same without a result
  const std::lock_guard lock(mutex_);
  begin_scope();
  quantizer_->forward(x.detach());
}

void AimetFakeQuantize::reset() {
  const std::lock_guard lock(mutex_);
  drop_scope();
  quantizer_ = model_->clone();
}

Tensor AimetFakeQuantize::forward(const Tensor& x) {
  const Switches now = switches();
  if (now.observer) update(x);
  if (!now.fake_quant) return x;
  end_scope();
  return quantizer_->forward(x);
}

bool AimetFakeQuantize::has_data() const {
  end_scope();
  return quantizer_->is_initialized();
}

ObservedQParams AimetFakeQuantize::calculate_qparams() const {
  QUANTA_SUPPORTED(dtype_ != DType::Float32,
                   "{}: calculate_qparams: expected an affine quantizer of up to 8 bits with one "
                   "scale, or one for each index of one axis, got {}",
                   kOp, quantizer_->to_string());
  if (!has_data()) return {Tensor::from_values({1.0F}), Tensor::zeros({1}, DType::Int64)};
  const aimet::EncodingPtr encoding = quantizer_->encoding();
  const auto& affine = dynamic_cast<const aimet::AffineEncoding&>(*encoding);
  const Dims flat{affine.scale().numel()};
  return {affine.scale().detach().reshape(flat).to(DType::Float32),
          mul_scalar(affine.offset().detach(), -1.0).reshape(flat).to(DType::Int64)};
}

std::int64_t AimetFakeQuantize::ch_axis() const noexcept {
  const std::int64_t axis = channel_axis(*quantizer_);
  return axis < 0 ? 0 : axis;
}

std::vector<std::pair<std::string, Tensor>> AimetFakeQuantize::named_parameters() const {
  std::vector<std::pair<std::string, Tensor>> parameters;
  for (auto& [name, tensor] : quantizer_->named_parameters()) {
    parameters.emplace_back(kQuantizerPrefix + name, tensor);
  }
  return parameters;
}

void AimetFakeQuantize::replace_parameters(std::span<const Tensor> parameters) {
  quantizer_->replace_parameters(parameters);
}

void AimetFakeQuantize::save_state(StateDict& state, const std::string& prefix) const {
  end_scope();
  save_switches(state, prefix, DType::UInt8);
  for (const auto& [name, tensor] : quantizer_->state_dict()) {
    state.set(prefix + kQuantizerPrefix + name, tensor);
  }
}

void AimetFakeQuantize::load_state(const StateDict& state, const std::string& prefix) {
  const Switches loaded = read_switches(state, prefix);
  {
    const std::lock_guard lock(mutex_);
    quantizer_->load_state_and_shape(state, prefix + kQuantizerPrefix);
    drop_scope();
    const std::shared_ptr<aimet::Quantizer> model = quantizer_->clone();
    model->forget_range();
    model_ = model;
    describe();
  }
  set_switches(loaded);
}

}  // namespace quanta
