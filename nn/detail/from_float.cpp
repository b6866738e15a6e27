#include "quanta/nn/detail/from_float.h"

#include <cmath>
#include <memory>

#include "quanta/observers/detail/reduce.h"

namespace quanta::nn::detail {
namespace {

const QConfig& expect_qconfig(std::string_view op, const Module& module) {
  const QConfig* qconfig = module.qconfig();
  QUANTA_CHECK(qconfig != nullptr,
               "{}: module: expected a {} with a qconfig (set_qconfig and prepare the model), got "
               "one without",
               op, module.type_name());
  return *qconfig;
}

QTensor quantize_for(DType dtype, std::string_view op, Observer& observer, const Tensor& weight) {
  QUANTA_CHECK(observer.dtype() == dtype,
               "{}: qconfig.weight: expected an observer for {}, got a {} for {}", op, dtype,
               observer.name(), observer.dtype());
  return quantize_with_observer(op, observer, weight);
}

std::shared_ptr<Observer> weight_observer(std::string_view op, const Module& module) {
  const QConfig& qconfig = expect_qconfig(op, module);
  QUANTA_CHECK(static_cast<bool>(qconfig.weight),
               "{}: qconfig.weight: expected a weight observer, got none", op);
  return qconfig.weight();
}

}  // namespace

void require_finite_weight(std::string_view op, const Tensor& weight) {
  if (!weight.defined() || weight.numel() == 0) return;
  const ValueRange range =
      quanta::detail::tensor_range(quanta::detail::dense_floats(weight.detach()));
  QUANTA_CHECK(std::isfinite(range.min[0]) && std::isfinite(range.max[0]),
               "{}: weight: expected finite numbers, got a range of {}..{}", op, range.min[0],
               range.max[0]);
}

QTensor quantize_with_observer(std::string_view op, Observer& observer, const Tensor& weight) {
  require_finite_weight(op, weight);
  observer.forward(weight);
  return quantize_with(weight, observer);
}

OutputParams output_params(std::string_view op, const Module& module) {
  static_cast<void>(expect_qconfig(op, module));
  const std::shared_ptr<Observer>& observer = module.activation_post_process();
  QUANTA_CHECK(observer != nullptr,
               "{}: module: expected an observed {} (prepare the model first), got one without an "
               "observer",
               op, module.type_name());
  return output_params(op, *observer);
}

OutputParams output_params(std::string_view op, const Observer& observer) {
  QUANTA_CHECK(is_quantized(observer.dtype()),
               "{}: activation_post_process: expected an observer for a quantized dtype, got a {} "
               "for {}",
               op, observer.name(), observer.dtype());
  QUANTA_CHECK(observer.has_data(),
               "{}: activation_post_process: expected an observer that saw data (run calibration "
               "batches through the prepared model), got a {} that saw none",
               op, observer.name());
  const ObservedQParams observed = observer.calculate_qparams();
  QUANTA_CHECK(observed.scale.numel() == 1,
               "{}: activation_post_process: expected one scale for the whole tensor, got {}", op,
               observed.scale.numel());
  OutputParams params{observed.scale.item(), observed.zero_point.to_int64_vector()[0],
                      observer.dtype()};
  QUANTA_CHECK(std::isfinite(params.scale) && params.scale > 0.0,
               "{}: scale: expected a finite number > 0 (did the calibration data hold infinite "
               "values?), got {}",
               op, params.scale);
  return params;
}

OutputParams quint8_output_params(std::string_view op, const Module& module) {
  const OutputParams params = output_params(op, module);
  QUANTA_SUPPORTED(params.dtype == DType::QUInt8,
                   "{}: activation_post_process: expected an observer for QUInt8, the only "
                   "activation dtype of convolutions and linear layers, got {}",
                   op, params.dtype);
  return params;
}

QTensor quantize_weight(std::string_view op, const Module& module, const Tensor& weight,
                        DType dtype) {
  return quantize_for(dtype, op, *weight_observer(op, module), weight);
}

QTensor quantize_weight_per_tensor(std::string_view op, const Module& module, const Tensor& weight,
                                   std::string_view reason, DType dtype) {
  const std::shared_ptr<Observer> observer = weight_observer(op, module);
  QUANTA_CHECK(!is_per_channel(observer->qscheme()),
               "{}: qconfig.weight: expected a per-tensor observer ({}), got a {} for {}", op,
               reason, observer->name(), observer->qscheme());
  return quantize_for(dtype, op, *observer, weight);
}

}  // namespace quanta::nn::detail
