#include "quanta/nn/quantized/module.h"

#include "quanta/nn/detail/quantized_state.h"

namespace quanta::nn::quantized {

OutputQuantized::OutputQuantized(double output_scale, std::int64_t output_zero_point,
                                 IntRange zero_points)
    : scale(output_scale), zero_point(output_zero_point), zero_points_(zero_points) {
  detail::check_qparams("nn::quantized", output_scale, output_zero_point, zero_points);
}

std::string OutputQuantized::type_name() const { return "Quantized" + Module::type_name(); }

void OutputQuantized::save_state(StateDict& state, const std::string& prefix) const {
  detail::save_qparams(state, prefix, scale, zero_point);
}

void OutputQuantized::load_state(StateReader& reader) {
  detail::load_qparams(reader, scale, zero_point, zero_points_);
}

}  // namespace quanta::nn::quantized
