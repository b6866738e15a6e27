#include "quanta/fusion/accuracy/method.h"

#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "quanta/fusion/accuracy/adaround.h"
#include "quanta/fusion/accuracy/awq.h"
#include "quanta/fusion/accuracy/bias_correction.h"
#include "quanta/fusion/accuracy/brecq.h"
#include "quanta/fusion/accuracy/cross_layer_equalization.h"
#include "quanta/fusion/accuracy/gptq.h"
#include "quanta/fusion/accuracy/outliers.h"
#include "quanta/fusion/accuracy/smooth_quant.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using Make = AccuracyMethod (*)();

// By name, sorted.
const std::map<std::string, Make, std::less<>>& named_methods() {
  static const std::map<std::string, Make, std::less<>> table{
      {"adaround", [] { return adaround_method(); }},
      {"awq", [] { return awq_method(); }},
      {"bias-absorption", [] { return high_bias_absorption_method(); }},
      {"bias-correction", [] { return bias_correction_method(); }},
      {"block-reconstruction", [] { return brecq_method(); }},
      {"brecq", [] { return brecq_method(); }},
      {"cle", [] { return cross_layer_equalization_method(); }},
      {"gptq", [] { return gptq_method(); }},
      {"outlier-float", [] { return keep_outliers_in_float_method(); }},
      {"outlier-split", [] { return split_outlier_channels_method(); }},
      {"smooth-quant", [] { return smooth_quant_method(); }},
  };
  return table;
}

}  // namespace

CalibrationData::CalibrationData(std::vector<Tensor> batches) {
  QUANTA_CHECK(!batches.empty() && batches[0].defined(),
               "CalibrationData: batches: expected at least one tensor, got none");
  example = {batches[0]};
  run = [owned = std::move(batches)](const nn::Module& model) {
    for (const Tensor& batch : owned) static_cast<void>(model(batch));
  };
}

std::vector<std::string> accuracy_method_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : named_methods()) names.push_back(name);
  return names;
}

AccuracyMethod accuracy_method(std::string_view name) {
  const auto found = named_methods().find(name);
  QUANTA_CHECK(found != named_methods().end(),
               "accuracy_method: name: expected one of {}, got '{}'",
               fmt::join(accuracy_method_names(), ", "), name);
  return found->second();
}

namespace detail {

void apply_method(const AccuracyMethod& method, nn::Module& model, nn::Module& reference,
                  const QConfigMapping& qconfigs, const CalibrationData& data) {
  QUANTA_CHECK(data.run, "{}: data.run: expected a function that feeds data, got none",
               method.name);
  method.apply(model, reference, qconfigs, data);
}

}  // namespace detail
}  // namespace quanta
