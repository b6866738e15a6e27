#include "quanta/observers/format_fake_quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "quanta/observers/detail/reduce.h"
#include "quanta/observers/detail/state.h"
#include "quanta/observers/modelopt/reduce.h"
#include "quanta/ops/cpu/float_formats.h"
#include "quanta/ops/detail/amax.h"
#include "quanta/ops/detail/element_format.h"
#include "quanta/ops/pad.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr std::string_view kOp = "FormatFakeQuantize";

std::string_view kind_name(FormatKind kind) {
  switch (kind) {
    case FormatKind::ScaledFloat:
      return "ScaledFloat";
    case FormatKind::DynamicBlocks:
      return "DynamicBlocks";
    case FormatKind::IntegerBlocks:
      return "IntegerBlocks";
  }
  return "?";
}

bool is_supported(const FormatOptions& options) {
  const NumBits& bits = options.num_bits;
  switch (options.kind) {
    case FormatKind::ScaledFloat:
      return bits == NumBits::floating(4, 3) || bits == NumBits::floating(5, 2);
    case FormatKind::DynamicBlocks:
      return detail::element_format(bits).has_value() &&
             (options.scale_bits == NumBits::floating(8, 0) ||
              options.scale_bits == NumBits::floating(4, 3));
    case FormatKind::IntegerBlocks:
      return !bits.is_float && bits.bits >= 2 && bits.bits <= 16;
  }
  return false;
}

// Whether values along axis 1 are multiplied and summed up: images, and volumes.
bool has_channel_axis(const Tensor& x) { return x.dim() == 4 || x.dim() == 5; }

Tensor channels_to_end(const Tensor& x) {
  return x.dim() == 4 ? x.permute({0, 2, 3, 1}) : x.permute({0, 2, 3, 4, 1});
}
Tensor channels_back(const Tensor& x) {
  return x.dim() == 4 ? x.permute({0, 3, 1, 2}) : x.permute({0, 4, 1, 2, 3});
}

// As scaled_e4m3, for either format. Arguments: x, amax.
struct ScaledFloat final : detail::AmaxOperation<ScaledFloat> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{2};
  std::int64_t exponent_bits = 4;
  std::int64_t mantissa_bits = 3;

  ScaledFloat() = default;
  ScaledFloat(std::int64_t exponent, std::int64_t mantissa)
      : exponent_bits(exponent), mantissa_bits(mantissa) {}
  static GradientRule rule() { return GradientRule::Clip; }
  void infer(const Arguments& in, Results& out) const override {
    detail::check_quantizable(kName, in[0]);
    infer_like(in[0], out);
  }
  std::string_view calculate(const Arguments& in, std::span<const Tensor> out) const {
    const auto seen = static_cast<float>(in[1].item());
    const math::FloatFormat format =
        *detail::element_format(NumBits::floating(exponent_bits, mantissa_bits));
    const float scale = format.max() / (seen <= math::kSmallestAmax ? 1.0F : seen);
    detail::map_amax({.step = detail::AmaxStep::Round,
                      .format = format,
                      .scale = scale,
                      .unscale = 1.0F / scale},
                     in[0], Tensor(), out[0]);
    return "simd";
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<ScaledFloat, &ScaledFloat::exponent_bits>("exponent_bits"),
        attribute<ScaledFloat, &ScaledFloat::mantissa_bits>("mantissa_bits")};
    return kTable;
  }
};

// "FormatFakeQuantize(DynamicBlocks, num_bits=(2, 1), scale_bits=(8, 0), block_size=32, rows)".
std::string describe(const FormatOptions& options) {
  std::string text = fmt::format("FormatFakeQuantize({}, num_bits={}", kind_name(options.kind),
                                 to_string(options.num_bits));
  if (options.kind == FormatKind::DynamicBlocks) {
    text += fmt::format(", scale_bits={}", to_string(options.scale_bits));
  }
  if (options.kind != FormatKind::ScaledFloat) {
    text += fmt::format(", block_size={}, {}", options.block_size,
                        options.block_axis == BlockAxis::Rows ? "rows" : "channels");
  }
  return text + ")";
}

}  // namespace

FormatFakeQuantize::FormatFakeQuantize(const Options& options) : options_(options) {
  QUANTA_CHECK(options.block_size >= 1, "{}: block_size: expected at least 1, got {}", kOp,
               options.block_size);
  QUANTA_SUPPORTED(is_supported(options),
                   "{}: num_bits: expected (4, 3) or (5, 2) for ScaledFloat, elements of "
                   "dynamic_block_quant with scale_bits (8, 0) or (4, 3) for DynamicBlocks, 2..16 "
                   "for IntegerBlocks, got {} with scale_bits {} for {}",
                   kOp, to_string(options.num_bits), to_string(options.scale_bits),
                   kind_name(options.kind));
  dtype_ = DType::Float32;
}

FormatFakeQuantize::FormatFakeQuantize(const FormatFakeQuantize& other)
    : FakeQuantizeBase(other), options_(other.options_), amax_(other.amax()) {}

ObserverFactory FormatFakeQuantize::with_args(const Options& options) {
  const FormatFakeQuantize checked(options);
  return {describe(options), [options] { return std::make_shared<FormatFakeQuantize>(options); }};
}

Settings FormatFakeQuantize::settings() const { return {{"format", describe(options_)}}; }

std::shared_ptr<Collector> FormatFakeQuantize::copy() const {
  return std::shared_ptr<FormatFakeQuantize>(new FormatFakeQuantize(*this));
}

bool FormatFakeQuantize::needs_amax() const noexcept {
  return options_.kind == FormatKind::ScaledFloat ||
         (options_.kind == FormatKind::DynamicBlocks &&
          options_.scale_bits == NumBits::floating(4, 3));
}

float FormatFakeQuantize::amax() const {
  const std::lock_guard lock(mutex_);
  return amax_;
}

bool FormatFakeQuantize::has_data() const { return !needs_amax() || amax() >= 0.0F; }

void FormatFakeQuantize::reset() {
  const std::lock_guard lock(mutex_);
  amax_ = -1.0F;
}

ObservedQParams FormatFakeQuantize::calculate_qparams() const {
  QUANTA_SUPPORTED(false,
                   "{}: calculate_qparams: expected a quantizer of integer codes with a scale and "
                   "a zero point (FakeQuantize, ...), got {}: its values can be simulated only",
                   kOp, kind_name(options_.kind));
}

Digest FormatFakeQuantize::digest(const Tensor& x) const {
  detail::check_quantizable(kOp, x);
  if (x.numel() == 0 || !needs_amax()) return {};
  const float largest =
      detail::largest_magnitudes(detail::tensor_range(detail::dense_floats(x.detach())))[0];
  QUANTA_CHECK(std::isfinite(largest), "{}: x: expected finite values, got a magnitude of {}", kOp,
               largest);
  return {.values = {largest}};
}

bool FormatFakeQuantize::absorb(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  amax_ = std::max(amax_, digest.values[0]);
  return true;
}

void FormatFakeQuantize::merge(const Collector& other) {
  require_same_kind(other);
  const float theirs = static_cast<const FormatFakeQuantize&>(other).amax();
  const std::lock_guard lock(mutex_);
  amax_ = std::max(amax_, theirs);
}

Tensor FormatFakeQuantize::forward(const Tensor& x) {
  detail::check_quantizable(kOp, x);
  if (x.numel() == 0) return x;
  const Switches now = switches();
  if (now.observer) update(x);
  return now.fake_quant ? quantized(x) : x;
}

Tensor FormatFakeQuantize::quantized(const Tensor& x) const {
  QUANTA_CHECK(has_data(),
               "{}: amax: expected data before values are quantized (run calibration with the "
               "observer enabled), got none",
               kOp);
  if (options_.kind == FormatKind::ScaledFloat) return scaled_float(x);
  if (options_.block_axis == BlockAxis::Rows) {
    const std::int64_t rows = x.dim() == 0 ? 1 : x.size(0);
    return blocks(x.reshape({rows, x.numel() / rows})).reshape(x.sizes());
  }
  if (has_channel_axis(x)) return channels_back(blocks(channels_to_end(x)));
  return x.dim() == 0 ? blocks(x.reshape({1})).reshape({}) : blocks(x);
}

Tensor FormatFakeQuantize::scaled_float(const Tensor& x) const {
  return run(ScaledFloat{options_.num_bits.exponent, options_.num_bits.mantissa}, x,
             Tensor::scalar(static_cast<double>(amax())).to(x.device()));
}

// Blocks along the last axis.
Tensor FormatFakeQuantize::blocks(const Tensor& rows) const {
  if (options_.kind == FormatKind::DynamicBlocks) {
    const Tensor global = needs_amax() ? Tensor::scalar(amax()).to(rows.device()) : Tensor();
    return dynamic_block_quant(rows, global,
                               {.num_bits = options_.num_bits,
                                .scale_bits = options_.scale_bits,
                                .block_size = options_.block_size});
  }
  const std::int64_t length = rows.size(-1);
  const std::int64_t block = options_.block_size;
  const std::int64_t missing = (block - length % block) % block;
  const Tensor padded = missing == 0 ? rows : pad(rows, {0, missing});
  const Tensor split = padded.reshape({padded.numel() / block, block});
  const Tensor amax =
      modelopt::reduce_amax(split.detach(), {0}).reshape({split.size(0), 1}).to(split.device());
  const FakeTensorQuantOptions options{
      .codes = {.num_bits = options_.num_bits.bits, .narrow_range = false},
      .gradient = GradientRule::PassThrough};
  const Tensor y = fake_tensor_quant(split, amax, options).reshape(padded.sizes());
  return missing == 0 ? y : y.narrow(-1, 0, length);
}

void FormatFakeQuantize::save_state(StateDict& state, const std::string& prefix) const {
  save_switches(state, prefix, DType::UInt8);
  state.set(prefix + "amax", Tensor::full({1}, amax()));
}

void FormatFakeQuantize::load_state(const StateDict& state, const std::string& prefix) {
  const Switches loaded = read_switches(state, prefix);
  const Tensor amax = detail::vector_state(state, prefix + "amax", DType::Float32);
  QUANTA_CHECK(amax.numel() == 1, "load_state_dict: {}amax: expected one value, got {}", prefix,
               amax.numel());
  set_switches(loaded);
  const std::lock_guard lock(mutex_);
  amax_ = static_cast<float>(amax.item());
}

}  // namespace quanta
