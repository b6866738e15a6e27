#include "quanta/nn/weight_only/attention.h"

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/skip_init.h"
#include "quanta/nn/weight_only/linear.h"

namespace quanta::nn::weight_only {

MultiheadAttention::MultiheadAttention(const nn::MultiheadAttention& source,
                                       const WeightOnlyOptions& options)
    : SplitMultiheadAttention(source, [&](const nn::Linear& projection) {
        return Linear::from_float(projection, options);
      }) {}

std::shared_ptr<Module> MultiheadAttention::from_float(const Module& module,
                                                       const WeightOnlyOptions& options) {
  const auto& source = detail::expect_module<nn::MultiheadAttention>(
      "weight_only.MultiheadAttention.from_float", module, "MultiheadAttention");
  const SkipInit no_random_weights;
  return make_module<MultiheadAttention>(source, options);
}

}  // namespace quanta::nn::weight_only
