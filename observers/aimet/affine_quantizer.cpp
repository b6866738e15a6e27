#include "quanta/observers/aimet/affine_quantizer.h"

#include <cmath>
#include <utility>

#include "quanta/observers/aimet/detail/affine_parameters.h"
#include "quanta/observers/aimet/detail/state.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::aimet {
namespace {

Grid grid_from(std::string_view name, const AffineQuantizerOptions& options) {
  QUANTA_CHECK(options.symmetric.has_value(), "{}: symmetric: expected true or false, got {}", name,
               "nothing");
  if (options.bitwidth.has_value()) {
    QUANTA_CHECK(!options.qmin.has_value() && !options.qmax.has_value(),
                 "{}: bitwidth: expected either bitwidth or qmin and qmax, got bitwidth {} beside "
                 "them",
                 name, *options.bitwidth);
    return Grid::from_bitwidth(*options.bitwidth, *options.symmetric);
  }
  QUANTA_CHECK(options.qmin.has_value() && options.qmax.has_value(),
               "{}: bitwidth: expected bitwidth, or qmin and qmax, got {}", name,
               options.qmin.has_value() || options.qmax.has_value() ? "one end" : "neither");
  return {*options.qmin, *options.qmax};
}

std::shared_ptr<EncodingAnalyzer> analyzer_from(std::string_view name,
                                                const AffineQuantizerOptions& options) {
  if (options.analyzer == nullptr) {
    return std::make_shared<MinMaxAnalyzer>(options.shape, options.block_size);
  }
  QUANTA_CHECK(quanta::detail::broadcasts_to(options.analyzer->shape(), options.shape),
               "{}: analyzer: expected a shape that can be expanded to {}, got {}", name,
               options.shape, options.analyzer->shape());
  return options.analyzer;
}

Tensor as_float32(const Tensor& x) { return x.detach().to(DType::Float32); }

}  // namespace

AffineQuantizer::AffineQuantizer(std::string_view name, const Options& options)
    : Quantizer(options.shape, options.block_size, analyzer_from(name, options)),
      grid_(grid_from(name, options)),
      symmetric_(*options.symmetric),
      zero_point_shift_(options.zero_point_shift),
      kernel_(options.kernel),
      rounding_(options.rounding) {
  QUANTA_CHECK(zero_point_shift_ == 0.0 || zero_point_shift_ == 0.5,
               "{}: zero_point_shift: expected 0 or 0.5, got {}", name, zero_point_shift_);
  QUANTA_CHECK(kernel_ != AffineKernel::InverseMultiply || block_size_.empty(),
               "{}: kernel: expected Automatic or Divide with block_size {}, got InverseMultiply",
               name, block_size_);
  reset_parameters(shape_, Parametrization::MinMax);
}

AffineQuantizer::AffineQuantizer(const AffineQuantizer& other)
    : Quantizer(other),
      grid_(other.grid_),
      symmetric_(other.symmetric_),
      zero_point_shift_(other.zero_point_shift_),
      kernel_(other.kernel_),
      rounding_(other.rounding_),
      parametrization_(other.parametrization_),
      may_write_min_(other.may_write_min_),
      may_write_max_(other.may_write_max_) {
  reset_parameters(shape_, parametrization_);
  const autograd::NoGradGuard guard;
  if (other.parameters_.first.version() != other.first_version_) {
    parameters_.first.copy_(other.parameters_.first.detach());
  }
  const Tensor& second = other.parameters_.second;
  if (second.defined() && second.version() != other.second_version_) {
    parameters_.second.copy_(second.detach());
  }
  requires_grad_(other.parameters_.first.requires_grad());
}

void AffineQuantizer::reset_parameters(const Dims& shape, Parametrization parametrization) {
  shape_ = shape;
  parametrization_ = parametrization;
  const bool by_range = parametrization == Parametrization::MinMax;
  parameters_.first = Tensor::full(shape, by_range ? -1.0 : 1.0);
  parameters_.second = Tensor();
  if (by_range || !symmetric_) parameters_.second = Tensor::full(shape, by_range ? 1.0 : 0.0);
  first_version_ = parameters_.first.version();
  if (parameters_.second.defined()) second_version_ = parameters_.second.version();
}

bool AffineQuantizer::is_initialized() const {
  if (parameters_.first.version() == first_version_) return false;
  return !parameters_.second.defined() || parameters_.second.version() != second_version_;
}

// Scale and offset -------------------------------------------------------------------------------

Tensor AffineQuantizer::raw_scale() const {
  if (parametrization_ == Parametrization::ScaleOffset) {
    return detail::bounded_scale(parameters_.first, grid_.num_steps());
  }
  return detail::scale_of_range(parameters_.first, parameters_.second, grid_.num_steps());
}

Tensor AffineQuantizer::symmetric_offset() const {
  const auto sum = static_cast<double>(grid_.qmin() + grid_.qmax());
  return Tensor::full(shape_, -math::round_half_even(sum / 2.0));
}

Tensor AffineQuantizer::raw_offset(const Tensor& scale) const {
  if (symmetric_) return symmetric_offset();
  if (parametrization_ == Parametrization::ScaleOffset) {
    return detail::round_straight_through(parameters_.second);
  }
  return detail::offset_of_range(parameters_.first, scale, grid_);
}

std::optional<Tensor> AffineQuantizer::get_scale() const {
  if (!is_initialized()) return std::nullopt;
  return final_scale(raw_scale());
}

std::optional<Tensor> AffineQuantizer::get_offset() const {
  if (!is_initialized()) return std::nullopt;
  return raw_offset(final_scale(raw_scale()));
}

std::optional<Tensor> AffineQuantizer::get_min() const {
  if (!is_initialized()) return std::nullopt;
  const Tensor scale = final_scale(raw_scale());
  const double end = static_cast<double>(grid_.qmin()) + zero_point_shift_;
  return mul(scale, add_scalar(raw_offset(scale), end));
}

std::optional<Tensor> AffineQuantizer::get_max() const {
  if (!is_initialized()) return std::nullopt;
  const Tensor scale = final_scale(raw_scale());
  const double end = static_cast<double>(grid_.qmax()) + zero_point_shift_;
  return mul(scale, add_scalar(raw_offset(scale), end));
}

EncodingPtr AffineQuantizer::make_encoding(const Tensor& scale, const Tensor& offset) const {
  return std::make_shared<AffineEncoding>(
      scale, offset, grid_,
      AffineEncodingOptions{symmetric_, block_size_, zero_point_shift_, "quanta"});
}

EncodingPtr AffineQuantizer::encoding() const {
  if (!is_initialized()) return nullptr;
  const Tensor raw = raw_scale();
  return make_encoding(raw, raw_offset(final_scale(raw)));
}

EncodingPtr AffineQuantizer::encoding_of(const Range& range) const {
  const Tensor min = range.min.expand(shape_).contiguous();
  const Tensor max = range.max.expand(shape_).contiguous();
  const Tensor scale = detail::plain_scale(min, max, grid_.num_steps());
  const Tensor offset = symmetric_ ? symmetric_offset() : detail::plain_offset(min, scale, grid_);
  return make_encoding(scale, offset);
}

AffineOptions AffineQuantizer::op_options() const {
  AffineOptions options;
  options.qmin = grid_.qmin();
  options.qmax = grid_.qmax();
  options.block_size = block_size_;
  options.zero_point_shift = zero_point_shift_;
  options.kernel = kernel_;
  options.rounding = rounding_;
  return options;
}

// Range ------------------------------------------------------------------------------------------

void AffineQuantizer::write(const Tensor& parameter, const Tensor& value,
                            std::string_view argument) {
  QUANTA_CHECK(quanta::detail::broadcasts_to(value.sizes(), shape_),
               "{}: {}: expected a shape that can be expanded to {}, got {}", name(), argument,
               shape_, value.sizes());
  const autograd::NoGradGuard guard;
  parameter.copy_(as_float32(value));
}

void AffineQuantizer::set_range(const std::optional<Tensor>& min,
                                const std::optional<Tensor>& max) {
  for (const auto* end : {&min, &max}) {
    if (!end->has_value()) continue;
    QUANTA_CHECK((*end)->defined() && (*end)->is_floating_point() &&
                     quanta::detail::broadcasts_to((*end)->sizes(), shape_),
                 "{}: {}: expected a floating tensor that can be expanded to {}, got {}", name(),
                 end == &min ? "min" : "max", shape_,
                 (*end)->defined() ? quanta::to_string((*end)->sizes()) : "an undefined one");
  }
  if (!min.has_value() && !max.has_value()) return;
  if (parametrization_ == Parametrization::MinMax) {
    if (min.has_value()) write(parameters_.first, *min, "min");
    if (max.has_value()) write(parameters_.second, *max, "max");
    return;
  }
  QUANTA_CHECK((min.has_value() && max.has_value()) || is_initialized(),
               "{}: set_range: expected both ends for a quantizer by scale and offset that is not "
               "initialized, got {} alone",
               name(), min.has_value() ? "min" : "max");
  const autograd::NoGradGuard guard;
  const Tensor low = as_float32(min.has_value() ? *min : *get_min()).expand(shape_).contiguous();
  const Tensor high = as_float32(max.has_value() ? *max : *get_max()).expand(shape_).contiguous();
  const Tensor scale = detail::plain_scale(low, high, grid_.num_steps());
  write(parameters_.first, scale, "min");
  if (!symmetric_) write(parameters_.second, detail::plain_offset(low, scale, grid_), "min");
}

void AffineQuantizer::set_range(double min, double max) {
  set_range(Tensor::scalar(min), Tensor::scalar(max));
}

void AffineQuantizer::allow_overwrite(bool min, bool max) noexcept {
  may_write_min_ = min;
  may_write_max_ = max;
}

void AffineQuantizer::use_scale_offset() {
  if (parametrization_ == Parametrization::ScaleOffset) return;
  const autograd::NoGradGuard guard;
  const bool recorded = parameters_.first.requires_grad();
  const std::optional<Tensor> scale = get_scale();
  const std::optional<Tensor> offset = get_offset();
  reset_parameters(shape_, Parametrization::ScaleOffset);
  if (scale.has_value()) {
    write(parameters_.first, *scale, "scale");
    if (!symmetric_) write(parameters_.second, *offset, "offset");
  }
  requires_grad_(recorded);
}

std::vector<std::pair<std::string, Tensor>> AffineQuantizer::named_parameters() const {
  const bool by_range = parametrization_ == Parametrization::MinMax;
  std::vector<std::pair<std::string, Tensor>> named{
      {by_range ? "min" : "scale", parameters_.first}};
  if (parameters_.second.defined()) {
    named.emplace_back(by_range ? "max" : "offset", parameters_.second);
  }
  return named;
}

void AffineQuantizer::requires_grad_(bool on) const {
  for (const auto& [name, parameter] : named_parameters()) parameter.set_requires_grad(on);
}

// Calibration ------------------------------------------------------------------------------------

bool AffineQuantizer::can_calibrate() const {
  return analyzer_ != nullptr && (may_write_min_ || may_write_max_);
}

std::int64_t AffineQuantizer::analyzer_steps() const noexcept {
  return grid_.num_steps() - (zero_point_shift_ == 0.5 ? 1 : 0);
}

Range AffineQuantizer::range_of_batch(const Tensor& x) const {
  return analyzer_->compute_range_of(x, analyzer_steps(), symmetric_);
}

Range AffineQuantizer::range_of_all() const {
  return analyzer_->compute_range(analyzer_steps(), symmetric_);
}

void AffineQuantizer::take_range(const Range& range) {
  set_range(may_write_min_ ? std::optional(range.min) : std::nullopt,
            may_write_max_ ? std::optional(range.max) : std::nullopt);
}

// State ------------------------------------------------------------------------------------------

std::string AffineQuantizer::to_string() const {
  std::string text = fmt::format("{}(shape={}", name(), detail::tuple_text(shape_));
  if (!block_size_.empty()) text += ", block_size=" + detail::tuple_text(block_size_);
  text += fmt::format(", qmin={}, qmax={}, symmetric={}", grid_.qmin(), grid_.qmax(),
                      symmetric_ ? "True" : "False");
  if (zero_point_shift_ != 0.0) text += fmt::format(", zero_point_shift={}", zero_point_shift_);
  return text + ")";
}

void AffineQuantizer::save_state(StateDict& state, const std::string& prefix) const {
  for (const auto& [name, parameter] : named_parameters()) {
    state.set(prefix + name, parameter.detach());
  }
  const bool second = parameters_.second.defined();
  detail::save_number(state, prefix, "initialized_first",
                      parameters_.first.version() != first_version_ ? 1.0 : 0.0);
  detail::save_number(state, prefix, "initialized_second",
                      second && parameters_.second.version() != second_version_ ? 1.0 : 0.0);
  detail::save_number(state, prefix, "qmin", static_cast<double>(grid_.qmin()));
  detail::save_number(state, prefix, "qmax", static_cast<double>(grid_.qmax()));
  detail::save_number(state, prefix, "symmetric", symmetric_ ? 1.0 : 0.0);
  detail::save_number(state, prefix, "zero_point_shift", zero_point_shift_);
  detail::save_dims(state, prefix, "block_size", block_size_);
}

void AffineQuantizer::load_state(const StateDict& state, const std::string& prefix) {
  const bool by_range = state.contains(prefix + "min");
  const Grid grid(detail::read_integer(state, prefix, "qmin"),
                  detail::read_integer(state, prefix, "qmax"));
  const bool symmetric = detail::read_number(state, prefix, "symmetric") != 0.0;
  const double shift = detail::read_number(state, prefix, "zero_point_shift");
  QUANTA_CHECK(shift == 0.0 || shift == 0.5, "load_state: {}: expected 0 or 0.5, got {}",
               detail::extra_name(prefix, "zero_point_shift"), shift);
  const Dims blocks = detail::read_dims(state, prefix, "block_size");
  const Tensor first = detail::read_floats(state, prefix + (by_range ? "min" : "scale"));
  Tensor second;
  if (by_range || !symmetric) {
    second = detail::read_floats(state, prefix + (by_range ? "max" : "offset"));
    QUANTA_CHECK(second.sizes() == first.sizes(),
                 "load_state: {}: expected the sizes {} of the other parameter, got {}",
                 prefix + (by_range ? "max" : "offset"), first.sizes(), second.sizes());
  }
  QUANTA_CHECK(blocks.empty() || blocks.size() == first.sizes().size(),
               "load_state: {}: expected one entry for each dimension of {}, got {}",
               detail::extra_name(prefix, "block_size"), first.sizes(), blocks);
  const bool first_written = detail::read_number(state, prefix, "initialized_first") != 0.0;
  const bool second_written = detail::read_number(state, prefix, "initialized_second") != 0.0;

  const bool recorded = parameters_.first.requires_grad();
  grid_ = grid;
  symmetric_ = symmetric;
  zero_point_shift_ = shift;
  if (analyzer_ != nullptr && (first.sizes() != shape_ || !(blocks == block_size_))) {
    analyzer_ = std::make_shared<MinMaxAnalyzer>(first.sizes(), blocks);
  }
  block_size_ = blocks;
  reset_parameters(first.sizes(),
                   by_range ? Parametrization::MinMax : Parametrization::ScaleOffset);
  if (first_written) write(parameters_.first, first, "min");
  if (second.defined() && second_written) write(parameters_.second, second, "max");
  requires_grad_(recorded);
}

// Quantize, QuantizeDequantize -------------------------------------------------------------------

namespace {

// A parameter's function where x is: parameters themselves stay on the CPU, with their gradients.
Tensor beside(const Tensor& values, const Tensor& x) { return values.to(x.device()).to(x.dtype()); }

}  // namespace

EncodedTensor Quantize::apply(const Tensor& x, const EncodingPtr& encoding) const {
  const auto& affine = static_cast<const AffineEncoding&>(*encoding);
  return {quantize_affine(x, beside(affine.scale(), x), beside(affine.offset(), x), op_options()),
          EncodedTensor::Kind::Quantized, encoding};
}

EncodedTensor QuantizeDequantize::apply(const Tensor& x, const EncodingPtr& encoding) const {
  const auto& affine = static_cast<const AffineEncoding&>(*encoding);
  return {quantize_dequantize_affine(x, beside(affine.scale(), x), beside(affine.offset(), x),
                                     op_options()),
          EncodedTensor::Kind::Dequantized, encoding};
}

}  // namespace quanta::aimet
