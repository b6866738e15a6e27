#include "quanta/nn/dynamic/gate_weight.h"

#include <utility>

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/quantized_state.h"

namespace quanta::nn::quantized::dynamic {
namespace ops = quanta::quantized;

GateWeight::GateWeight(const Tensor& weight, const Tensor& bias) {
  QUANTA_CHECK(weight.defined(), "GateWeight: weight: expected a tensor, got an undefined one");
  if (weight.is_quantized()) {
    int8_ = ops::LinearPackedParams(weight.as_quantized("GateWeight", "weight"), bias);
  } else {
    float16_ = ops::LinearPackedParamsFp16(weight, bias);
  }
}

GateWeight GateWeight::from_float(std::string_view op, const Module& module, const Tensor& weight,
                                  const Tensor& bias) {
  const QConfig* qconfig = module.qconfig();
  QUANTA_CHECK(qconfig != nullptr && qconfig->weight,
               "{}: module: expected a {} with a qconfig for weights (default_dynamic_qconfig, "
               "float16_dynamic_qconfig), got none",
               op, module.type_name());
  QUANTA_CHECK(weight.defined() && weight.dtype() == DType::Float32,
               "{}: module: expected a float module, got {}", op, module.type_name());
  const DType dtype = qconfig->weight()->dtype();
  QUANTA_CHECK(dtype == DType::QInt8 || dtype == DType::Float16,
               "{}: qconfig.weight: expected an observer for QInt8 or Float16, got one for {}", op,
               dtype);
  if (dtype == DType::Float16) return {weight, bias};
  return {nn::detail::quantize_weight(op, module, weight), bias};
}

DType GateWeight::dtype() const { return int8_.defined() ? DType::QInt8 : DType::Float16; }

Tensor GateWeight::weight() const {
  return int8_.defined() ? Tensor(int8_.weight()) : float16_.weight();
}

const Tensor& GateWeight::bias() const { return int8_.defined() ? int8_.bias() : float16_.bias(); }

Tensor GateWeight::operator()(const Tensor& x, ReduceRange reduce_range, Fusion fusion) const {
  if (fusion == Fusion::ReLU) {
    return int8_.defined() ? ops::linear_relu_dynamic(x, int8_, reduce_range)
                           : ops::linear_relu_dynamic_fp16(x, float16_);
  }
  return int8_.defined() ? ops::linear_dynamic(x, int8_, reduce_range)
                         : ops::linear_dynamic_fp16(x, float16_);
}

std::shared_ptr<const HiddenProduct> GateWeight::hidden_product(ReduceRange reduce_range) const {
  return int8_.defined() ? ops::dynamic_hidden_product(int8_, reduce_range)
                         : ops::dynamic_hidden_product(float16_);
}

void GateWeight::save(StateDict& state, const std::string& weight_name,
                      const std::string& bias_name) const {
  state.set(weight_name, weight());
  if (bias().defined()) state.set(bias_name, bias());
}

void GateWeight::load(StateReader& reader, const std::string& weight_name,
                      const std::string& bias_name) {
  const Tensor* new_weight = reader.require(weight_name);
  const Tensor* found = reader.find(bias_name);
  const Tensor new_bias = found != nullptr ? *found : Tensor();
  if (new_weight == nullptr ||
      (int8_.defined() &&
       nn::detail::is_packed_already(*new_weight, new_bias, int8_.weight(), int8_.bias()))) {
    return;
  }
  if (new_weight->sizes() != weight().sizes()) {
    reader.problem(fmt::format("{}: expected sizes {}, got {}", reader.full_name(weight_name),
                               weight().sizes(), new_weight->sizes()));
    return;
  }
  try {
    GateWeight loaded(*new_weight, new_bias);
    reader.on_commit([this, loaded = std::move(loaded)] { *this = loaded; });
  } catch (const Error& error) {
    reader.problem(fmt::format("{}: {}", reader.full_name(weight_name), error.what()));
  }
}

void GateWeight::check_sizes(std::string_view what, const Dims& sizes) const {
  const Dims given = defined() ? weight().sizes() : Dims{};
  QUANTA_CHECK(given == sizes, "{}: expected sizes {}, got {}", what, sizes, given);
}

RecurrentWeights GateWeights::unpacked() const {
  return {.weight_ih = ih.weight(),
          .weight_hh = hh.weight(),
          .bias_ih = ih.bias(),
          .bias_hh = hh.bias(),
          .weight_hr = {}};
}

void GateWeights::save(StateDict& state, const std::string& ih_name,
                       const std::string& hh_name) const {
  ih.save(state, ih_name + "/0", ih_name + "/1");
  hh.save(state, hh_name + "/0", hh_name + "/1");
}

void GateWeights::load(StateReader& reader, const std::string& ih_name,
                       const std::string& hh_name) {
  ih.load(reader, ih_name + "/0", ih_name + "/1");
  hh.load(reader, hh_name + "/0", hh_name + "/1");
}

void save_reduce_range(StateDict& state, const std::string& name, ReduceRange reduce_range) {
  if (reduce_range == ReduceRange::No) state.set(name, Tensor::scalar(0.0, DType::Int64));
}

void load_reduce_range(StateReader& reader, const std::string& name, ReduceRange& reduce_range) {
  const Tensor* given = reader.find(name);
  ReduceRange loaded = ReduceRange::Yes;
  if (given != nullptr) {
    if (given->numel() != 1 || given->dtype() != DType::Int64) {
      reader.problem(fmt::format("{}: expected one Int64, got {} {}", reader.full_name(name),
                                 given->dtype(), given->sizes()));
      return;
    }
    loaded = given->to_int64_vector()[0] == 0 ? ReduceRange::No : ReduceRange::Yes;
  }
  reader.on_commit([&reduce_range, loaded] { reduce_range = loaded; });
}

}  // namespace quanta::nn::quantized::dynamic
