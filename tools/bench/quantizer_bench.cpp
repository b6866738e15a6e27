// Quantize-dequantize of a large tensor by each kind of quantizer, beside the machine's copy speed.

#include "op_bench.h"
#include "quanta/observers/aimet/float_encoding.h"
#include "quanta/ops/block_quant.h"
#include "quanta/ops/quantize_affine.h"
#include "quanta/ops/tensor_quant.h"

namespace quanta::bench {
namespace {

constexpr std::int64_t kRows = 4096;
constexpr std::int64_t kColumns = 4096;

template <typename Op>
void add_quantizer(const std::string& name, Op op) {
  // Every element is read and written.
  add_benchmark("quantizer/" + name, {.bytes = 2.0 * 4.0 * kRows * kColumns}, [=] {
    const Tensor x = float_input({kRows, kColumns});
    return std::pair{[op, x] { benchmark::DoNotOptimize(op(x)); }, nullptr};
  });
}

void add_affine(const std::string& name, const Dims& shape, AffineOptions options) {
  const Tensor scale = Tensor::full(shape, kScale);
  const Tensor offset = Tensor::zeros(shape);
  add_quantizer("affine/" + name, [=](const Tensor& x) {
    return quantize_dequantize_affine(x, scale, offset, options);
  });
}

void add_amax(const std::string& name, const Dims& shape) {
  const Tensor amax = Tensor::full(shape, 4.0);
  add_quantizer("amax_int8/" + name, [=](const Tensor& x) { return fake_tensor_quant(x, amax); });
  add_quantizer("fp8_e4m3/" + name, [=](const Tensor& x) { return scaled_e4m3(x, amax); });
}

void add_float(const std::string& name, const char* format, const Dims& shape,
               const Dims& block_size = {}) {
  const Tensor scale = Tensor::full(shape, kScale);
  const aimet::FloatSpec spec = aimet::FloatSpec::from_name(format);
  add_quantizer("float/" + name, [=](const Tensor& x) {
    return aimet::float_quantize_dequantize(x, scale, spec, block_size);
  });
}

void add_dynamic_blocks(const std::string& name, const DynamicBlockOptions& options,
                        const Tensor& amax = {}) {
  add_quantizer(name, [=](const Tensor& x) { return dynamic_block_quant(x, amax, options); });
}

void add_quantizers() {
  constexpr auto kDivide = AffineKernel::Divide;
  constexpr auto kMultiply = AffineKernel::InverseMultiply;
  add_affine("per_tensor/multiply", {}, {.kernel = kMultiply});
  add_affine("per_tensor/divide", {}, {.kernel = kDivide});
  add_affine("per_channel/multiply", {kRows, 1}, {.kernel = kMultiply});
  add_affine("per_channel/divide", {kRows, 1}, {.kernel = kDivide});
  add_affine("per_column/divide", {kColumns}, {.kernel = kDivide});
  add_affine("block32", {kRows, kColumns / 32}, {.block_size = {1, 32}});
  add_affine("block64x64", {kRows / 64, kColumns / 64}, {.block_size = {64, 64}});
  add_amax("per_tensor", {});
  add_amax("per_channel", {kRows, 1});

  add_float("e5m2/per_tensor", "float8_e5m2", {});
  add_float("e4m3fnuz/per_channel", "float8_e4m3fnuz", {kRows, 1});
  add_float("bfloat16/per_tensor", "bfloat16", {});
  add_float("e2m1fn/block32", "float4_e2m1fn", {kRows, kColumns / 32}, {1, 32});

  const NumBits e8m0 = NumBits::floating(8, 0);
  add_dynamic_blocks("mxfp8/block32",
                     {.num_bits = NumBits::floating(4, 3), .scale_bits = e8m0, .block_size = 32});
  add_dynamic_blocks("mxfp6/block32",
                     {.num_bits = NumBits::floating(3, 2), .scale_bits = e8m0, .block_size = 32});
  add_dynamic_blocks("mxfp4/block32", {.scale_bits = e8m0, .block_size = 32});
  add_dynamic_blocks("nvfp4/block16", {}, Tensor::full({}, 5.0));
}

const Family kQuantizers(add_quantizers);

}  // namespace
}  // namespace quanta::bench
