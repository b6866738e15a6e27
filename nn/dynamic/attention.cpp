#include "quanta/nn/dynamic/attention.h"

#include <string_view>

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/skip_init.h"

namespace quanta::nn::quantized::dynamic {

MultiheadAttention::MultiheadAttention(const nn::MultiheadAttention& source, const QConfig& qconfig)
    : SplitMultiheadAttention(source, [&](const nn::Linear& projection) {
        auto layer = make_module<nn::Linear>(projection);
        layer->set_qconfig(qconfig);
        return Linear::from_float(*layer);
      }) {}

std::shared_ptr<Module> MultiheadAttention::from_float(const Module& module) {
  constexpr std::string_view kOp = "dynamic::MultiheadAttention.from_float";
  const auto& source =
      nn::detail::expect_module<nn::MultiheadAttention>(kOp, module, "MultiheadAttention");
  QUANTA_CHECK(module.qconfig() != nullptr,
               "{}: module: expected a {} with a qconfig for weights (default_dynamic_qconfig, "
               "float16_dynamic_qconfig), got none",
               kOp, module.type_name());
  const SkipInit no_random_weights;
  return make_module<MultiheadAttention>(source, *module.qconfig());
}

std::string MultiheadAttention::type_name() const {
  return "DynamicQuantized" + Module::type_name();
}

}  // namespace quanta::nn::quantized::dynamic
