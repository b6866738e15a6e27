#include "quanta/nn/quantized/stubs.h"

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/quantized_state.h"
#include "quanta/nn/stubs.h"
#include "quanta/ops/quantize.h"

namespace quanta::nn::quantized {

Quantize::Quantize(double output_scale, std::int64_t output_zero_point, DType dtype)
    : scale(output_scale), zero_point(output_zero_point), dtype_(dtype) {
  QUANTA_CHECK(dtype == DType::QUInt8 || dtype == DType::QInt8 || dtype == DType::QInt32,
               "Quantize: dtype: expected QUInt8, QInt8 or QInt32, got {}", dtype);
  detail::check_qparams("Quantize", output_scale, output_zero_point, quant_range(dtype));
}

std::shared_ptr<Module> Quantize::from_float(const Module& module) {
  constexpr std::string_view kOp = "Quantize.from_float";
  static_cast<void>(detail::expect_module<QuantStub>(kOp, module, "QuantStub"));
  const detail::OutputParams params = detail::output_params(kOp, module);
  return make_module<Quantize>(params.scale, params.zero_point, params.dtype);
}

Tensor Quantize::forward(const Tensor& x) const {
  return quantize_per_tensor(x, scale, zero_point, dtype_);
}

std::string Quantize::extra_repr() const {
  return fmt::format("scale={}, zero_point={}, dtype=torch.{}", detail::python_float(scale),
                     zero_point, torch_name(dtype_));
}

void Quantize::save_state(StateDict& state, const std::string& prefix) const {
  detail::save_qparams(state, prefix, scale, zero_point, {1});
}

void Quantize::load_state(StateReader& reader) {
  detail::load_qparams(reader, scale, zero_point, quant_range(dtype_));
}

std::shared_ptr<Module> DeQuantize::from_float(const Module& module) {
  static_cast<void>(
      detail::expect_module<DeQuantStub>("DeQuantize.from_float", module, "DeQuantStub"));
  return make_module<DeQuantize>();
}

Tensor DeQuantize::forward(const Tensor& x) const { return dequantize(x); }

}  // namespace quanta::nn::quantized
