#include "quanta/nn/weight_only/linear.h"

#include <algorithm>
#include <array>
#include <utility>

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/linear.h"
#include "quanta/ops/quantize.h"

namespace quanta::nn::weight_only {
namespace {

// weight_format: bits, group size (0: one group a channel), in_features, 1 for symmetric codes.
constexpr std::int64_t kFormatSize = 4;

Tensor describe_format(const WeightOnlyPackedParams& packed) {
  const WeightOnlyOptions& options = packed.options();
  return Tensor::from_int64(std::array<std::int64_t, kFormatSize>{
      options.bits, options.group_size, packed.in_features(), options.symmetric ? 1 : 0});
}

/// What a `weight_format` says; its numbers are checked where the weight is packed.
WeightOnlyOptions parse_format(const Tensor& format, std::int64_t in_features) {
  QUANTA_CHECK(format.dtype() == DType::Int64 && format.sizes() == Dims{kFormatSize},
               "weight_format: expected Int64 [{}], got {} {}", kFormatSize, format.dtype(),
               format.sizes());
  const std::vector<std::int64_t> values = format.to_int64_vector();
  QUANTA_CHECK(values[0] == 8 || values[0] == 4, "weight_format: expected 8 or 4 bits, got {}",
               values[0]);
  QUANTA_CHECK(values[2] == in_features, "weight_format: expected {} input features, got {}",
               in_features, values[2]);
  QUANTA_CHECK(values[3] == 0 || values[3] == 1,
               "weight_format: expected 0 or 1 as the fourth number, got {}", values[3]);
  return {static_cast<int>(values[0]), values[1], values[3] == 1};
}

}  // namespace

Linear::Linear(WeightOnlyPackedParams packed) : packed_(std::move(packed)) {
  QUANTA_CHECK(packed_.defined(), "Linear: packed: expected packed parameters, got empty ones");
}

std::shared_ptr<Module> Linear::from_float(const Module& module, const WeightOnlyOptions& options) {
  const auto& source =
      detail::expect_module<nn::Linear>("weight_only.Linear.from_float", module, "Linear");
  return make_module<Linear>(quantize_weight_only(source.weight, source.bias, options));
}

std::string Linear::extra_repr() const {
  return fmt::format(
      "in_features={}, out_features={}, bias={}, bits={}, group_size={}, symmetric={}",
      packed_.in_features(), packed_.out_features(), detail::python_bool(bias().defined()),
      options().bits, options().group_size, detail::python_bool(options().symmetric));
}

void Linear::save_state(StateDict& state, const std::string& prefix) const {
  state.set(prefix + "weight_packed", packed_.bytes());
  state.set(prefix + "weight_scale", packed_.scales());
  if (!options().symmetric) state.set(prefix + "weight_zero_point", packed_.zero_points());
  state.set(prefix + "weight_format", describe_format(packed_));
  if (bias().defined()) state.set(prefix + "bias", bias());
}

// A weight of torchao: codes with a scale for each output feature (see read_pt_state_dict).
bool Linear::load_codes(StateReader& reader) {
  const Tensor* weight = reader.find("weight");
  if (weight == nullptr || weight->dtype() != DType::QInt8) return false;
  const Tensor* new_bias = reader.find("bias");
  try {
    const QTensor codes(*weight);
    QUANTA_CHECK(codes.is_per_channel() && codes.q_per_channel_axis() == 0,
                 "expected a weight quantized per channel along axis 0, got another");
    const std::vector<float> zero_points = codes.q_per_channel_zero_points().to_float_vector();
    QUANTA_CHECK(
        std::all_of(zero_points.begin(), zero_points.end(), [](float z) { return z == 0; }),
        "expected zero points 0, got others");
    QUANTA_CHECK(codes.sizes() == (Dims{packed_.out_features(), packed_.in_features()}),
                 "expected [{}, {}], got {}", packed_.out_features(), packed_.in_features(),
                 codes.sizes());
    WeightOnlyPackedParams loaded(
        int_repr(codes),
        codes.q_per_channel_scales().to(DType::Float32).view({packed_.out_features(), 1}), Tensor(),
        new_bias == nullptr ? Tensor() : *new_bias, WeightOnlyOptions{});
    reader.on_commit([this, loaded = std::move(loaded)] { packed_ = loaded; });
  } catch (const Error& error) {
    reader.problem(fmt::format("{}: {}", reader.full_name("weight"), error.what()));
  }
  return true;
}

void Linear::load_state(StateReader& reader) {
  if (load_codes(reader)) return;
  const Tensor* bytes = reader.require("weight_packed");
  const Tensor* scales = reader.require("weight_scale");
  const Tensor* format = reader.require("weight_format");
  const Tensor* zero_points = reader.find("weight_zero_point");
  const Tensor* new_bias = reader.find("bias");
  if (bytes == nullptr || scales == nullptr || format == nullptr) return;
  try {
    const WeightOnlyOptions options = parse_format(*format, packed_.in_features());
    const auto optional = [](const Tensor* tensor) { return tensor ? *tensor : Tensor(); };
    auto loaded = WeightOnlyPackedParams::from_bytes(
        *bytes, *scales, optional(zero_points), optional(new_bias), packed_.in_features(), options);
    QUANTA_CHECK(loaded.out_features() == packed_.out_features(),
                 "weight_packed: expected {} rows, got {}", packed_.out_features(),
                 loaded.out_features());
    reader.on_commit([this, loaded = std::move(loaded)] { packed_ = loaded; });
  } catch (const Error& error) {
    reader.problem(fmt::format("{}: {}", reader.full_name("weight_packed"), error.what()));
  }
}

}  // namespace quanta::nn::weight_only
