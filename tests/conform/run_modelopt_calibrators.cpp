// ModelOpt's calibrators.

#include <memory>
#include <string>

#include "arguments.h"
#include "collector_settings.h"
#include "expected_error.h"
#include "modelopt_values.h"
#include "quanta/observers/modelopt/calibrator.h"
#include "quanta/observers/modelopt/histogram_calibrator.h"
#include "quanta/observers/modelopt/reduce.h"
#include "quanta/ops/tensor_quant.h"
#include "registry.h"

namespace quanta::conform {
namespace {

std::shared_ptr<Collector> make(const Case& test, const std::string& name) {
  Settings settings;
  take_settings(test, name, settings);
  return make_collector(name, settings);
}

Outputs run_max(const Case& test) {
  const auto calibrator =
      std::dynamic_pointer_cast<modelopt::Calibrator>(make(test, "MaxCalibrator"));
  for (const Tensor& batch : test.tensors("batches")) calibrator->collect(batch);
  Outputs outputs;
  outputs.set("amax", calibrator->compute_amax());
  return outputs;
}

Outputs run_histogram(const Case& test) {
  const auto calibrator =
      std::dynamic_pointer_cast<modelopt::HistogramCalibrator>(make(test, "HistogramCalibrator"));
  for (const Tensor& batch : test.tensors("batches")) calibrator->collect(batch);
  modelopt::HistogramSearch search;
  const Arguments given(test.attrs);
  given("stride", search.stride);
  given("start_bin", search.start_bin);
  given("percentile", search.percentile);
  Outputs outputs;
  outputs.set("amax", calibrator->compute_amax(
                          modelopt::histogram_method_from_name(test.text("method")), search));
  outputs.set("histogram", calibrator->histogram());
  outputs.set("bin_edges", calibrator->bin_edges());
  return outputs;
}

Outputs run_mse(const Case& test) {
  modelopt::MseCalibrator::Options options;
  const Arguments given(test.attrs);
  given("axis", options.axis);
  given("step_size", options.step_size);
  given("start_multiplier", options.start_multiplier);
  given("stop_multiplier", options.stop_multiplier);
  if (test.has_attr("num_bits")) {
    const TensorQuantOptions codes{test.integer("num_bits"), false,
                                   test.flag("narrow_range", false)};
    options.quant_func = [codes](const Tensor& x, const Tensor& amax) {
      return fake_tensor_quant(x, amax, {codes});
    };
  }
  const Tensor amax = test.has_input("amax") ? test.tensor("amax") : Tensor::scalar(1.0);
  modelopt::MseCalibrator calibrator(amax, options);
  for (const Tensor& batch : test.tensors("batches")) calibrator.collect(batch);
  Outputs outputs;
  outputs.set("amax", calibrator.compute_amax());
  outputs.set("losses", calibrator.losses());
  return outputs;
}

Outputs run_bias(const Case& test) {
  const auto calibrator =
      std::dynamic_pointer_cast<modelopt::BiasCalibrator>(make(test, "BiasCalibrator"));
  for (const Tensor& batch : test.tensors("batches")) calibrator->collect(batch);
  Outputs outputs;
  outputs.set("bias", calibrator->compute_bias());
  return outputs;
}

Outputs run_block_amax(const Case& test) {
  const modelopt::BlockSizes blocks = block_sizes_of(test.attr("block_sizes"));
  Outputs outputs;
  outputs.set("padded", modelopt::reduce_block_padding(test.tensor("x"), blocks));
  outputs.set("amax", modelopt::reduce_block_amax(test.tensor("x"), blocks));
  return outputs;
}

const Registration kOps{
    {"modelopt.calib.max", expecting_errors(run_max)},
    {"modelopt.calib.histogram", expecting_errors(run_histogram)},
    {"modelopt.calib.mse", expecting_errors(run_mse)},
    {"modelopt.calib.bias", expecting_errors(run_bias)},
    {"modelopt.reduce_block_amax", expecting_errors(run_block_amax)},
};

}  // namespace
}  // namespace quanta::conform
