#include "quanta/tools/cli/networks.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>

#include "quanta/fusion/freeze.h"
#include "quanta/runtime/profiler.h"
#include "quanta/runtime/random.h"
#include "quanta/tools/networks/detector.h"
#include "support/compare.h"

namespace quanta::test {
namespace {

using cli::NetworkForm;
using cli::NetworkKind;

double measured_multiply_adds(const nn::Module& model, const Tensor& x) {
  const Profiler profiler;
  static_cast<void>(model(x));
  double sum = 0.0;
  for (const ModuleProfile& module : profiler.modules()) {
    sum += static_cast<double>(module.work.multiply_adds);
  }
  return sum;
}

std::int64_t count_parameters(const nn::Module& model) {
  std::int64_t count = 0;
  for (const Tensor& tensor : model.parameters()) count += tensor.numel();
  return count;
}

/// Float and quantized, of the same weights.
void check_forms(const std::string& name, double least_db) {
  CAPTURE(name);
  const NetworkKind& kind = cli::network_kind(name);
  const NetworkForm form = kind.is_static ? NetworkForm::Int8 : NetworkForm::DynamicInt8;
  manual_seed(3);
  const auto in_float = cli::make_random_network(kind, NetworkForm::Float32, {});
  manual_seed(3);
  const auto int8 = cli::make_random_network(kind, form, cli::random_inputs(kind, 2));
  const Tensor x = cli::random_inputs(kind, 1);
  const Tensor y = (*int8)(x);
  CHECK(sqnr_db((*in_float)(x), y) > least_db);
  // A plan for the static part and the dynamic one alike, with the bits of the modules.
  CHECK(freeze(*int8, x)(x).equal(y));
}

}  // namespace

TEST_CASE("benchmark networks: the multiply-adds of the table are those of the operations") {
  for (const NetworkKind& kind : cli::network_kinds()) {
    // Their sizes are those of bert4, but for the layers and tokens.
    if (kind.name == "bert_base" || kind.name == "distilbert_512") continue;
    CAPTURE(kind.name);
    const auto model = cli::make_random_network(kind, NetworkForm::Float32, {});
    const double found = measured_multiply_adds(*model, cli::random_inputs(kind, 1));
    CHECK(kind.multiply_adds == doctest::Approx(found).epsilon(0.01));
  }
}

TEST_CASE(
    "benchmark networks: the convolutional ones are near to float and frozen with their bits") {
  check_forms("efficientnet_b0", 10.0);
  check_forms("yolo_n", 10.0);
}

TEST_CASE("benchmark networks: the transformers are near to float and frozen with their bits") {
  check_forms("vit_tiny", 25.0);
  check_forms("distilbert_16", 25.0);
}

TEST_CASE("benchmark networks: the two towers are near to float and frozen with their bits") {
  check_forms("two_tower", 20.0);
}

TEST_CASE("benchmark networks: the CRNN has int8 convolutions and a dynamic LSTM behind them") {
  check_forms("crnn", 15.0);
  const NetworkKind& kind = cli::network_kind("crnn");
  const auto int8 = cli::make_random_network(kind, NetworkForm::Int8, cli::random_inputs(kind, 1));
  std::map<std::string, std::string> types;
  for (const auto& entry : int8->named_modules()) types[entry.path] = entry.module->type_name();
  CHECK(types["conv7"] == "QuantizedConvReLU2d");
  CHECK(types["lstm"] == "DynamicQuantizedLSTM");
  CHECK(types["fc"] == "DynamicQuantizedLinear");
  // A column of classes for each fourth pixel but the last.
  CHECK((*int8)(cli::random_inputs(kind, 2)).sizes() == Dims{2, 39, 37});
}

TEST_CASE("benchmark networks: the detector has YOLOv5n's weights and a column for each cell") {
  networks::Detector net;
  net.eval();
  CHECK(count_parameters(net) == 1'872'157);
  Generator generator(1);
  CHECK(net(randn({1, 3, 64, 96}, generator)).sizes() == Dims{1, 255, 8 * 12 + 4 * 6 + 2 * 3});
}

}  // namespace quanta::test
