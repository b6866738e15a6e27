#include "quanta/nn/aimet/affine_quantizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quanta/nn/aimet/detail/affine_parameters.h"
#include "quanta/nn/aimet/detail/state.h"
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
  register_parameters();
}

void AffineQuantizer::register_parameters() {
  register_parameter("min", min_);
  register_parameter("max", max_);
  register_parameter("scale", scale_);
  register_parameter("offset", offset_);
}

AffineQuantizer::AffineQuantizer(const AffineQuantizer& other)
    : Quantizer(other),
      grid_(other.grid_),
      symmetric_(other.symmetric_),
      zero_point_shift_(other.zero_point_shift_),
      kernel_(other.kernel_),
      rounding_(other.rounding_),
      parametrization_(other.parametrization_),
      min_(other.min_),
      max_(other.max_),
      scale_(other.scale_),
      offset_(other.offset_),
      may_write_min_(other.may_write_min_),
      may_write_max_(other.may_write_max_) {
  first_mark_ = mark_of(first(), other.first_written());
  second_mark_ = mark_of(second(), other.second_written());
}

AffineQuantizer::Mark AffineQuantizer::mark_of(const Tensor& parameter, bool written) {
  return {written, parameter, parameter.defined() ? parameter.version() : 0};
}

bool AffineQuantizer::is_written(const Tensor& parameter, const Mark& mark, double initial) {
  if (mark.written) return true;
  if (!parameter.defined()) return false;
  if (mark.tensor.version() != mark.version) return true;
  if (parameter.storage().get() == mark.tensor.storage().get()) return false;
  // A copy, on another device or with a module that was cloned: what it holds tells.
  const std::vector<float> values = parameter.detach().cpu().to_float_vector();
  return std::any_of(values.begin(), values.end(),
                     [&](float value) { return static_cast<double>(value) != initial; });
}

bool AffineQuantizer::first_written() const {
  return is_written(first(), first_mark_, by_range() ? -1.0 : 1.0);
}

bool AffineQuantizer::second_written() const {
  return is_written(second(), second_mark_, by_range() ? 1.0 : 0.0);
}

void AffineQuantizer::put_parameters(std::span<const Tensor> parameters) {
  const bool first_was = first_written();
  const bool second_was = second_written();
  (by_range() ? min_ : scale_) = parameters[0];
  if (parameters.size() > 1) (by_range() ? max_ : offset_) = parameters[1];
  first_mark_ = mark_of(first(), first_was);
  second_mark_ = mark_of(second(), second_was);
}

// On the device of the parameters that were there before, and with gradients as they had.
void AffineQuantizer::reset_parameters(const Dims& shape, Parametrization parametrization) {
  const bool recorded = first().defined() && first().requires_grad();
  const Device device = first().defined() ? first().device() : Device::cpu();
  const auto filled = [&](double value) {
    const Tensor parameter = Tensor::full(shape, value).to(device);
    if (recorded) parameter.set_requires_grad();
    return parameter;
  };
  min_ = max_ = scale_ = offset_ = Tensor();
  shape_ = shape;
  parametrization_ = parametrization;
  if (by_range()) {
    min_ = filled(-1.0);
    max_ = filled(1.0);
  } else {
    scale_ = filled(1.0);
    if (!symmetric_) offset_ = filled(0.0);
  }
  first_mark_ = mark_of(first(), false);
  second_mark_ = mark_of(second(), false);
}

bool AffineQuantizer::is_initialized() const {
  return first_written() && (!second().defined() || second_written());
}

void AffineQuantizer::require_settings(const Grid&, bool) const {}

void AffineQuantizer::set_bitwidth(std::int64_t bitwidth) {
  const Grid grid = grid_.with_bitwidth(bitwidth);
  require_settings(grid, symmetric_);
  grid_ = grid;
}

void AffineQuantizer::set_symmetric(bool symmetric) {
  if (symmetric == symmetric_) return;
  require_settings(grid_, symmetric);
  if (!by_range()) {
    offset_ = symmetric ? Tensor() : symmetric_offset().to(scale_.device());
    if (!symmetric && scale_.requires_grad()) offset_.set_requires_grad();
    second_mark_ = mark_of(offset_, !symmetric && first_written());
  }
  symmetric_ = symmetric;
}

// Scale and offset -------------------------------------------------------------------------------

namespace {

// Where parameters are calculated with, on their tape.
Tensor on_cpu(const Tensor& parameter) { return parameter.to(Device::cpu()); }

}  // namespace

Tensor AffineQuantizer::raw_scale() const {
  if (!by_range()) return detail::bounded_scale(on_cpu(scale_), grid_.num_steps());
  return detail::scale_of_range(on_cpu(min_), on_cpu(max_), grid_.num_steps());
}

Tensor AffineQuantizer::symmetric_offset() const {
  const auto sum = static_cast<double>(grid_.qmin() + grid_.qmax());
  return Tensor::full(shape_, -math::round_half_even(sum / 2.0));
}

Tensor AffineQuantizer::raw_offset(const Tensor& scale) const {
  if (symmetric_) return symmetric_offset();
  if (!by_range()) return detail::round_straight_through(on_cpu(offset_));
  return detail::offset_of_range(on_cpu(min_), scale, grid_);
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

void AffineQuantizer::write(End end, const Tensor& value, std::string_view argument) {
  QUANTA_CHECK(quanta::detail::broadcasts_to(value.sizes(), shape_),
               "{}: {}: expected a shape that can be expanded to {}, got {}", name(), argument,
               shape_, value.sizes());
  const autograd::NoGradGuard guard;
  (end == End::First ? first() : second()).copy_(as_float32(value));
  (end == End::First ? first_mark_ : second_mark_).written = true;
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
  if (by_range()) {
    if (min.has_value()) write(End::First, *min, "min");
    if (max.has_value()) write(End::Second, *max, "max");
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
  write(End::First, scale, "min");
  if (!symmetric_) write(End::Second, detail::plain_offset(low, scale, grid_), "min");
}

void AffineQuantizer::set_range(double min, double max) {
  set_range(Tensor::scalar(min), Tensor::scalar(max));
}

void AffineQuantizer::allow_overwrite(bool min, bool max) noexcept {
  may_write_min_ = min;
  may_write_max_ = max;
}

void AffineQuantizer::use_scale_offset() {
  if (!by_range()) return;
  const bool was_initialized = is_initialized();
  const Tensor min = on_cpu(min_.detach());
  const Tensor max = on_cpu(max_.detach());
  reset_parameters(shape_, Parametrization::ScaleOffset);
  // As given: get_offset() keeps the offset of min and max, not that of scale and offset, in the
  // grid.
  if (was_initialized) set_range(min, max);
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

void AffineQuantizer::require_writable() const {
  QUANTA_CHECK(
      by_range() || (may_write_min_ && may_write_max_) || is_initialized(),
      "{}: compute_encodings: expected a quantizer by scale and offset that is initialized, "
      "or both ends to be overwritten, got {} alone",
      name(), may_write_min_ ? "min" : "max");
}

void AffineQuantizer::take_range(const Range& range) {
  set_range(may_write_min_ ? std::optional(range.min) : std::nullopt,
            may_write_max_ ? std::optional(range.max) : std::nullopt);
}

// State ------------------------------------------------------------------------------------------

std::string AffineQuantizer::extra_repr() const {
  std::string text = "shape=" + detail::tuple_text(shape_);
  if (!block_size_.empty()) text += ", block_size=" + detail::tuple_text(block_size_);
  text += fmt::format(", qmin={}, qmax={}, symmetric={}", grid_.qmin(), grid_.qmax(),
                      symmetric_ ? "True" : "False");
  if (zero_point_shift_ != 0.0) text += fmt::format(", zero_point_shift={}", zero_point_shift_);
  return text;
}

void AffineQuantizer::save_state(StateDict& state, const std::string& prefix) const {
  detail::save_number(state, prefix, "initialized_first", first_written() ? 1.0 : 0.0);
  detail::save_number(state, prefix, "initialized_second", second_written() ? 1.0 : 0.0);
  detail::save_number(state, prefix, "qmin", static_cast<double>(grid_.qmin()));
  detail::save_number(state, prefix, "qmax", static_cast<double>(grid_.qmax()));
  detail::save_number(state, prefix, "symmetric", symmetric_ ? 1.0 : 0.0);
  detail::save_number(state, prefix, "zero_point_shift", zero_point_shift_);
  detail::save_dims(state, prefix, "block_size", block_size_);
}

namespace {

// What a state lacks stays as the quantizer has it.
struct Loaded {
  Grid grid;
  bool symmetric;
  double zero_point_shift;
  Dims block_size;
  std::shared_ptr<EncodingAnalyzer> analyzer;
  // Of parameters that the state has.
  std::optional<bool> first_written{};
  std::optional<bool> second_written{};
};

}  // namespace

void AffineQuantizer::load_state(nn::StateReader& reader) {
  Loaded loaded{grid_, symmetric_, zero_point_shift_, block_size_, analyzer_};
  const std::int64_t qmin = detail::read_integer(reader, "qmin").value_or(grid_.qmin());
  const std::int64_t qmax = detail::read_integer(reader, "qmax").value_or(grid_.qmax());
  const auto read_flag = [&](std::string_view name) -> std::optional<bool> {
    const std::optional<double> value = detail::read_number(reader, name);
    return value.has_value() ? std::optional(*value != 0.0) : std::nullopt;
  };
  loaded.symmetric = read_flag("symmetric").value_or(symmetric_);
  loaded.zero_point_shift =
      detail::read_number(reader, "zero_point_shift").value_or(zero_point_shift_);
  loaded.block_size = detail::read_dims(reader, "block_size").value_or(block_size_);
  const bool first_initialized = read_flag("initialized_first").value_or(true);
  const bool second_initialized = read_flag("initialized_second").value_or(true);
  if (reader.find(by_range() ? "min" : "scale") != nullptr) {
    loaded.first_written = first_initialized;
  }
  if (second().defined() && reader.find(by_range() ? "max" : "offset") != nullptr) {
    loaded.second_written = second_initialized;
  }
  if (loaded.zero_point_shift != 0.0 && loaded.zero_point_shift != 0.5) {
    reader.problem(fmt::format("{}: expected 0 or 0.5, got {}",
                               reader.full_name(detail::extra_name("zero_point_shift")),
                               loaded.zero_point_shift));
  }
  try {
    loaded.grid = Grid(qmin, qmax);
    if (detail::check_blocks(reader, loaded.block_size, shape_)) {
      loaded.analyzer = analyzer_for(shape_, loaded.block_size);
    }
  } catch (const Error& error) {
    reader.problem(
        fmt::format("{}: {}", reader.full_name(detail::extra_name("qmin")), error.what()));
  }
  // Runs when the values of the parameters were copied.
  reader.on_commit([this, loaded] {
    grid_ = loaded.grid;
    zero_point_shift_ = loaded.zero_point_shift;
    block_size_ = loaded.block_size;
    analyzer_ = loaded.analyzer;
    set_symmetric(loaded.symmetric);
    if (loaded.first_written.has_value()) first_mark_ = mark_of(first(), *loaded.first_written);
    if (loaded.second_written.has_value() && second().defined()) {
      second_mark_ = mark_of(second(), *loaded.second_written);
    }
  });
}

void AffineQuantizer::make_room_for(const StateDict& state) {
  const bool is_range = !state.contains("scale");
  const Tensor* parameter = state.find(is_range ? "min" : "scale");
  if (parameter == nullptr) return;  // loading names it
  const Dims shape = parameter->sizes();
  const auto wanted = is_range ? Parametrization::MinMax : Parametrization::ScaleOffset;
  const bool symmetric = is_range ? symmetric_ : !state.contains("offset");
  if (shape == shape_ && wanted == parametrization_ && symmetric == symmetric_) return;
  const Tensor* blocks = state.find(detail::extra_name("block_size"));
  if (shape != shape_) {
    // With the blocks of the state, which loading checks.
    const bool fits = blocks != nullptr && blocks->dtype() == DType::Int64 &&
                      blocks->numel() == static_cast<std::int64_t>(shape.size());
    const Dims sizes = fits ? Dims(blocks->to_int64_vector()) : Dims{};
    analyzer_ = analyzer_for(shape, sizes);
    block_size_ = sizes;
  }
  symmetric_ = symmetric;
  reset_parameters(shape, wanted);
}

// Quantize, QuantizeDequantize -------------------------------------------------------------------

namespace {

// A parameter's function where x is: parameters themselves stay on the CPU, with their gradients.
Tensor beside(const Tensor& values, const Tensor& x) { return values.to(x.device()).to(x.dtype()); }

}  // namespace

Quantize::Quantize(const Options& options) : AffineQuantizer("Quantize", options) {
  QUANTA_CHECK(zero_point_shift() == 0.0,
               "Quantize: zero_point_shift: expected 0 (QuantizeDequantize takes others), got {}",
               zero_point_shift());
}

QuantizedTensor Quantize::operator()(const Tensor& x) const {
  EncodedTensor y = Quantizer::operator()(x);
  if (y.kind() == EncodedTensor::Kind::Plain) return {y.tensor(), nullptr};
  return QuantizedTensor(std::move(y));
}

DequantizedTensor QuantizeDequantize::operator()(const Tensor& x) const {
  EncodedTensor y = Quantizer::operator()(x);
  if (y.kind() == EncodedTensor::Kind::Plain) return {y.tensor(), nullptr};
  return DequantizedTensor(std::move(y));
}

std::shared_ptr<Quantizer> Quantize::clone() const { return detail::clone_of(*this); }

std::shared_ptr<Quantizer> QuantizeDequantize::clone() const { return detail::clone_of(*this); }

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
