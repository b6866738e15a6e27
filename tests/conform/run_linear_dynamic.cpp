#include "quanta/ops/linear_dynamic.h"

#include "quanta/ops/quantize.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using quantized::LinearPackedParams;
using quantized::LinearPackedParamsFp16;
using quantized::ReduceRange;

Outputs run_fp16(const Case& test) {
  const LinearPackedParamsFp16 packed(test.tensor("weight"), test.optional_tensor("bias"));
  const Tensor x = test.tensor("x");
  Outputs out;
  out.set("y", test.flag("relu", false) ? quantized::linear_relu_dynamic_fp16(x, packed)
                                        : quantized::linear_dynamic_fp16(x, packed));
  out.set("weight_unpacked", packed.weight().to(DType::Float32));
  return out;
}

Outputs run_linear_dynamic(const Case& test) {
  if (test.text("weight_dtype") == "float16") return run_fp16(test);
  const LinearPackedParams packed(test.qtensor("weight"), test.optional_tensor("bias"));
  const Tensor x = test.tensor("x");
  const bool reduce_range = test.flag("reduce_range", false);
  const ReduceRange range = reduce_range ? ReduceRange::Yes : ReduceRange::No;
  Outputs out;
  out.set("y", test.flag("relu", false) ? quantized::linear_relu_dynamic(x, packed, range)
                                        : quantized::linear_dynamic(x, packed, range));
  const math::QParams qparams = choose_qparams_per_tensor(x, reduce_range);
  out.set("x_scale", qparams.scale);
  out.set("x_zero_point", qparams.zero_point);
  return out;
}

const Registration kOps{{"linear_dynamic", run_linear_dynamic}};

}  // namespace
}  // namespace quanta::conform
