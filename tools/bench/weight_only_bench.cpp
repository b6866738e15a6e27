// Linear layers with weights of 8 and 4 bits beside the float layer. With one row what counts is
// how fast the weight is read: `rotating` goes through more layers than caches hold, as a network
// does, the others call one layer again and again, whose weight may stay in a cache.

#include <memory>

#include "op_bench.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/linear_weight_only.h"

namespace quanta::bench {
namespace {

constexpr std::int64_t kInFeatures = 1024;
constexpr std::int64_t kOutFeatures = 4096;

struct Form {
  const char* name;
  WeightOnlyOptions options;
};
const Form kForms[] = {
    {"int8/channel", {8, 0, true}},    {"int8/group32", {8, 32, true}},
    {"int4/channel", {4, 0, true}},    {"int4/group32", {4, 32, true}},
    {"int4/group128", {4, 128, true}}, {"int4/group32/zero_points", {4, 32, false}}};

Work work_of(const WeightOnlyOptions& options, std::int64_t rows, std::int64_t layers) {
  constexpr double kWeights = static_cast<double>(kInFeatures * kOutFeatures);
  const double groups = static_cast<double>(
      kOutFeatures * (options.group_size == 0 ? 1 : kInFeatures / options.group_size));
  const double bytes = kWeights * options.bits / 8 + groups * (options.symmetric ? 4 : 5);
  const auto count = static_cast<double>(layers);
  // Few rows are limited by reading the weight, many by multiplying.
  if (rows >= 16) return {.operations = 2.0 * count * static_cast<double>(rows) * kWeights};
  return {.bytes = count * bytes, .read_set = static_cast<std::size_t>(count * bytes)};
}

/// Calls `layers` layers of random weights, all with the same input.
void add_layers(const std::string& name, const Form& form, const Tensor& x, std::int64_t layers) {
  const Work work = work_of(form.options, x.sizes()[0], layers);
  add_benchmark(name, work, [=] {
    auto packed = std::make_shared<std::vector<WeightOnlyPackedParams>>();
    auto floats = std::make_shared<std::vector<PackedLinear>>();
    const Tensor weight = float_input({kOutFeatures, kInFeatures});
    const Tensor bias = float_input({kOutFeatures});
    for (std::int64_t i = 0; i < layers; ++i) {
      packed->push_back(quantize_weight_only(weight, bias, form.options));
      floats->emplace_back(weight, bias);
    }
    return std::pair(
        [=] {
          for (const WeightOnlyPackedParams& each : *packed) linear_weight_only(x, each);
        },
        [=] {
          for (const PackedLinear& each : *floats) each(x);
        });
  });
}

const Family kFamily([] {
  for (const Form& form : kForms) {
    for (const std::int64_t rows : {1, 4, 16, 128}) {
      add_layers("linear_weight_only/" + std::to_string(rows) + "x1024->4096/" + form.name, form,
                 float_input({rows, kInFeatures}), 1);
    }
    constexpr std::int64_t kLayers = 32;
    add_layers(std::string("linear_weight_only/1x1024->4096/rotating/") + form.name, form,
               float_input({1, kInFeatures}), kLayers);
  }
});

}  // namespace
}  // namespace quanta::bench
