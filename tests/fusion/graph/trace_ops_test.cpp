// Each operation of the catalogue that has a form in ONNX: written, read again and run as the file
// says it, and the same numbers.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/write_eager.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/nn/module.h"
#include "quanta/ops/catalogue.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"

namespace quanta::graph {
namespace {

/// A sample call whose first argument is the input; codes are quantized from it.
struct SampleModule : nn::Module {
  Sample sample;
  explicit SampleModule(Sample call) : sample(std::move(call)) { eval(); }

  std::vector<Tensor> forward_all(std::span<const Tensor> inputs) const override {
    std::vector<Tensor> all = sample.inputs;
    const Tensor first = all[0];
    all[0] = inputs[0];
    if (first.is_quantized()) {
      const Quantizer q = QTensor(first).quantizer();
      all[0] = quantize_per_tensor(inputs[0], q.scale, q.zero_point, first.dtype());
    }
    const Results results = run_all(*sample.operation, std::span<const Tensor>(all));
    return {results.begin(), results.end()};
  }
};

Tensor plain(const Tensor& x) { return x.is_quantized() ? dequantize(QTensor(x)) : x; }

/// How far `got` is off, relative to the largest magnitude or, for codes, in codes.
double off_by(const Tensor& want, const Tensor& got) {
  const std::vector<float> a = plain(want).to_float_vector();
  const std::vector<float> b = plain(got).to_float_vector();
  if (a.size() != b.size()) return 1e9;
  double largest = 1e-6;
  double off = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    largest = std::max(largest, std::isfinite(a[i]) ? std::abs(static_cast<double>(a[i])) : 0.0);
    const double step = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    off = std::isnan(step) ? 1e9 : std::max(off, step);
  }
  return want.is_quantized() ? off / QTensor(want).quantizer().scale : off / largest;
}

/// An input that has the first argument's values.
Tensor input_of(const Sample& sample) { return plain(sample.inputs[0]).contiguous(); }

}  // namespace

TEST_CASE("to_onnx: each operation that has a form says the same in the file") {
  constexpr double kFloats = 2e-5;
  constexpr double kCodes = 1.001;
  int written = 0;
  std::string refused;
  for (const OperationEntry& entry : operations().entries()) {
    for (const DType dtype : {DType::Float32, DType::QUInt8, DType::Int64, DType::Bool}) {
      if (!entry.takes(dtype)) continue;
      const Sample sample = entry.sample(dtype);
      std::string name(entry.name);
      if (name.starts_with("quantized::")) name.erase(0, 11);
      if (detail::find_eager_writer(name) == nullptr || sample.inputs.empty()) continue;
      CAPTURE(entry.name);
      CAPTURE(to_string(dtype));
      CAPTURE(to_string(*sample.operation));
      const SampleModule net(sample);
      const Tensor x = input_of(sample);
      std::optional<OnnxModel> file;
      try {
        file = to_onnx(net, x);
      } catch (const UnsupportedError& error) {
        refused += fmt::format("{} {}: {}\n", entry.name, to_string(dtype), error.what());
        continue;
      }
      ++written;
      if (file->opsets.at("") >= 23) continue;  // float4, for which there is no dtype
      const std::vector<Tensor> want = net(std::span<const Tensor>(&x, 1));
      // ONNX's rule for dynamic codes is another one; what the metadata says is ours.
      const bool is_dynamic = name.find("dynamic") != std::string::npos;
      const Model read = from_onnx(*file, {.literal = !is_dynamic});
      const std::vector<Tensor> got = read.run(std::span<const Tensor>(&x, 1));
      REQUIRE(got.size() == want.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        CAPTURE(i);
        CHECK(got[i].sizes() == want[i].sizes());
        CHECK(off_by(want[i], got[i]) < (want[i].is_quantized() ? kCodes : kFloats));
      }
    }
  }
  INFO(refused);
  CHECK(written > 150);
}

TEST_CASE("to_onnx: norms of an order that LpPool cannot have are refused") {
  struct Norm : nn::Module {
    double p;
    explicit Norm(double order) : p(order) { eval(); }
    Tensor forward(const Tensor& x) const override {
      return lp_pool(x, {.kernel_size = {2}, .p = p}, 2);
    }
  };
  const Tensor x = Tensor::ones({1, 1, 4, 4});
  CHECK(to_onnx(Norm(3.0), x).graph.nodes.size() == 1);
  for (const double order : {1.5, 1e17, 1e300}) {
    CHECK_THROWS_WITH_AS(to_onnx(Norm(order), x), doctest::Contains("whole ones up to 2^53 alone"),
                         UnsupportedError);
  }
}

}  // namespace quanta::graph
