#include "quanta/nn/quantized/attention.h"

#include "quanta/nn/detail/converted_parts.h"
#include "quanta/nn/detail/from_float.h"
#include "quanta/ops/quantize.h"

namespace quanta::nn::quantized {
namespace {

Tensor quantized_row(const Tensor& row) {
  if (!row.defined()) return row;
  const math::QParams params = choose_qparams_per_tensor(row);
  return quantize_per_tensor(row, params.scale, params.zero_point, DType::QUInt8);
}

void load_row(StateReader& reader, const char* name, Tensor& row) {
  if (!row.defined()) return;
  const Tensor* source = reader.require(name);
  if (source == nullptr) return;
  if (source->dtype() != DType::QUInt8 || source->sizes() != row.sizes()) {
    reader.problem(fmt::format("{}: expected QUInt8 {}, got {} {}", reader.full_name(name),
                               row.sizes(), source->dtype(), source->sizes()));
    return;
  }
  reader.on_commit([&row, loaded = source->clone()] { row = loaded; });
}

}  // namespace

MultiheadAttention::MultiheadAttention(const quantizable::MultiheadAttention& converted)
    : quantizable::MultiheadAttention(converted),
      rows_{quantized_row(bias_k), quantized_row(bias_v)} {
  nn::detail::finish_converted("quantized::MultiheadAttention", *this);
  bias_k = {};
  bias_v = {};
}

std::shared_ptr<Module> MultiheadAttention::from_observed(const Module& module) {
  return make_module<MultiheadAttention>(nn::detail::expect_module<quantizable::MultiheadAttention>(
      "quantized::MultiheadAttention.from_observed", module, "quantizable MultiheadAttention"));
}

void MultiheadAttention::save_state(StateDict& state, const std::string& prefix) const {
  if (!rows_.key.defined()) return;
  state.set(prefix + "bias_k", rows_.key);
  state.set(prefix + "bias_v", rows_.value);
}

void MultiheadAttention::load_state(StateReader& reader) {
  load_row(reader, "bias_k", rows_.key);
  load_row(reader, "bias_v", rows_.value);
}

}  // namespace quanta::nn::quantized
