// A 4-layer encoder of BERT-base's shape on embeddings of 128 tokens, float beside dynamic int8,
// and its attention beside the same in steps. OMP_NUM_THREADS says how many threads.

#include <hwy/targets.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "op_bench.h"
#include "peak.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/models/encoder_classifier.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"
#include "quanta/ops/cpu/features.h"
#include "quanta/runtime/random.h"

namespace quanta::bench {
namespace {

using nn::models::EncoderClassifier;

constexpr std::int64_t kTokens = 128;
constexpr std::int64_t kFeatures = 768;
constexpr std::int64_t kHeads = 12;
constexpr std::int64_t kInner = 3072;
constexpr std::int64_t kLayers = 4;

double attention_operations(std::int64_t batch, std::int64_t tokens) {
  return 4.0 * static_cast<double>(batch * tokens * tokens * kFeatures);
}

void add_encoder(std::int64_t batch, std::int64_t tokens) {
  const std::int64_t weights = kLayers * (4 * kFeatures * kFeatures + 2 * kFeatures * kInner);
  const Work work{.bytes = static_cast<double>(weights),  // int8: a byte each
                  .operations = 2.0 * static_cast<double>(batch * tokens * weights) +
                                kLayers * attention_operations(batch, tokens),
                  .read_set = static_cast<std::size_t>(weights)};
  add_benchmark("encoder4/int8/batch" + std::to_string(batch) + "/tokens" + std::to_string(tokens),
                work, [batch, tokens] {
                  const auto float32 = std::make_shared<EncoderClassifier>(kLayers);
                  float32->eval();
                  const auto int8 = std::make_shared<EncoderClassifier>(quantize_dynamic(*float32));
                  const Tensor x = float_input({batch, tokens, kFeatures});
                  return std::pair([int8, x] { (*int8)(x); }, [float32, x] { (*float32)(x); });
                });
}

// Both quantized dynamically: products of queries, keys and values in int8 beside float.
void add_int8_attention_encoder(std::int64_t tokens) {
  add_benchmark("encoder4/attention_int8/batch1/tokens" + std::to_string(tokens), {}, [tokens] {
    const auto make = [](DType dtype) {
      manual_seed(1);
      EncoderClassifier net(kLayers, {.attention_dtype = dtype});
      net.eval();
      return std::make_shared<EncoderClassifier>(quantize_dynamic(net));
    };
    const auto int8 = make(DType::QInt8);
    const auto float32 = make(DType::Float32);
    const Tensor x = float_input({1, tokens, kFeatures});
    return std::pair([int8, x] { (*int8)(x); }, [float32, x] { (*float32)(x); });
  });
}

const Family kEncoders([] {
  add_int8_attention_encoder(kTokens);
  add_int8_attention_encoder(512);
  add_encoder(1, kTokens);
  add_encoder(8, kTokens);
  add_encoder(1, 16);
});

// Both products of attention in int8, beside float.
void add_int8_attention(std::int64_t tokens) {
  add_benchmark("attention/int8/tokens" + std::to_string(tokens),
                {.operations = attention_operations(1, tokens)}, [tokens] {
                  const Tensor all = float_input({1, tokens, 3 * kFeatures});
                  const auto part = [&](std::int64_t i) {
                    return all.narrow(-1, i * kFeatures, kFeatures)
                        .view({1, tokens, kHeads, kFeatures / kHeads})
                        .transpose(1, 2);
                  };
                  const auto attend = [q = part(0), k = part(1), v = part(2)](DType dtype) {
                    scaled_dot_product_attention(q, k, v, {}, {.attention_dtype = dtype});
                  };
                  return std::pair([attend] { attend(DType::QInt8); },
                                   [attend] { attend(DType::Float32); });
                });
}

const Family kInt8Attention([] {
  add_int8_attention(16);
  add_int8_attention(kTokens);
  add_int8_attention(512);
});

// Float both: "steps" is the product, softmax and product by themselves and a copy that joins the
// heads. With vectors of 32 bytes kernels are held down to AVX2; its share of the peak is of
// vectors as long.
void attention(benchmark::State& state) {
  const std::int64_t tokens = state.range(0);
  const auto vector_bytes = static_cast<int>(state.range(1));
  const double peak = float_peak(vector_bytes);
  if (peak == 0.0) return state.SkipWithError("no such vectors on this machine");
  if (vector_bytes == 32) {
    hwy::SetSupportedTargetsForTest(cpu::highway_target(cpu::Code::Avx2));
  }
  const Tensor all = float_input({1, tokens, 3 * kFeatures});
  const auto part = [&](std::int64_t i) {
    return all.narrow(-1, i * kFeatures, kFeatures)
        .view({1, tokens, kHeads, kFeatures / kHeads})
        .transpose(1, 2);
  };
  const Tensor q = part(0);
  const Tensor k = part(1);
  const Tensor v = part(2);
  const auto join = [&](const Tensor& heads) {
    return heads.transpose(1, 2).reshape({1, tokens, kFeatures});
  };
  const auto fused = [&] { return join(scaled_dot_product_attention(q, k, v)); };
  constexpr std::int64_t kHeadFeatures = kFeatures / kHeads;
  const double scale = 1.0 / std::sqrt(static_cast<double>(kHeadFeatures));
  const auto steps = [&] { return join(matmul(attention_weights(q, k, {}, scale), v)); };
  for (auto _ : state) benchmark::DoNotOptimize(fused());
  const double fused_seconds = median_seconds(fused);
  const double steps_seconds = median_seconds(steps);
  hwy::SetSupportedTargetsForTest(0);
  const double rate = attention_operations(1, tokens) / fused_seconds;
  state.counters["steps_ms"] = 1e3 * steps_seconds;
  state.counters["steps/fused"] = steps_seconds / fused_seconds;
  state.counters["GFLOP/s"] = rate / 1e9;
  state.counters["of_fma_peak"] = rate / peak;
}

BENCHMARK(attention)
    ->ArgNames({"tokens", "vector_bytes"})
    ->ArgsProduct({{16, kTokens, 512}, {32, 64}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace quanta::bench
