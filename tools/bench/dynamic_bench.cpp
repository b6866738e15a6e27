// Linear layers with QInt8 and Float16 weights and Float32 activations beside the packed float
// layer. A few rows read each weight once, so the bytes of weights per second are what counts; with
// many rows the products do.

#include <string>

#include "op_bench.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/linear_dynamic.h"

namespace quanta::bench {
namespace {

constexpr std::int64_t kInFeatures = 1024;
constexpr std::int64_t kOutFeatures = 4096;

Work work_of(std::int64_t rows, std::int64_t weight_bytes) {
  const std::int64_t weights = kInFeatures * kOutFeatures;
  return {.bytes = static_cast<double>(weights * weight_bytes),
          .operations = 2.0 * static_cast<double>(rows * weights),
          .read_set = static_cast<std::size_t>(weights * weight_bytes)};
}

void add_linear() {
  const Dims weight_sizes{kOutFeatures, kInFeatures};
  for (const std::int64_t rows : {1, 8, 128}) {
    const Dims sizes{rows, kInFeatures};
    const std::string shape = "/" + std::to_string(rows) + "x1024x4096";
    add_benchmark("linear_dynamic" + shape, work_of(rows, 1), [=] {
      const Tensor bias = float_input({kOutFeatures});
      return std::pair{[x = float_input(sizes),
                        packed = quantized::LinearPackedParams(qint8_weight(weight_sizes), bias)] {
                         quantized::linear_dynamic(x, packed, quantized::ReduceRange::Yes);
                       },
                       [x = float_input(sizes),
                        packed = PackedLinear(float_input(weight_sizes), bias)] { packed(x); }};
    });
    add_benchmark("linear_dynamic_fp16" + shape, work_of(rows, 2), [=] {
      const Tensor weight = float_input(weight_sizes);
      const Tensor bias = float_input({kOutFeatures});
      return std::pair{
          [x = float_input(sizes), packed = quantized::LinearPackedParamsFp16(weight, bias)] {
            quantized::linear_dynamic_fp16(x, packed);
          },
          [x = float_input(sizes), packed = PackedLinear(weight, bias)] { packed(x); }};
    });
  }
}

const Family kLinear(add_linear);

}  // namespace
}  // namespace quanta::bench
