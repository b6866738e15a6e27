#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "arguments.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/fused_fake_quantize.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/runtime/error.h"
#include "registry.h"

namespace quanta::conform {
namespace {

Tensor leaf(const Tensor& tensor) {
  tensor.set_requires_grad();
  return tensor;
}

/// y of `function` and the gradient of x for the case's grad_out.
Outputs forward_and_backward(const Case& test,
                             const std::function<Tensor(const Tensor&)>& function) {
  const Tensor x = leaf(test.tensor("x"));
  const Tensor y = function(x);
  y.backward(test.tensor("grad_out"));
  Outputs outputs;
  outputs.set("y", y.detach());
  outputs.set("grad_x", x.grad());
  return outputs;
}

Outputs run_per_tensor(const Case& test) {
  const std::int64_t min = test.integer("quant_min");
  const std::int64_t max = test.integer("quant_max");
  return forward_and_backward(test, [&](const Tensor& x) {
    if (test.has_input("scale")) {
      return fake_quantize_per_tensor_affine(x, test.tensor("scale"), test.tensor("zero_point"),
                                             min, max);
    }
    return fake_quantize_per_tensor_affine(x, test.number("scale"), test.integer("zero_point"), min,
                                           max);
  });
}

Outputs run_per_channel(const Case& test) {
  return forward_and_backward(test, [&](const Tensor& x) {
    return fake_quantize_per_channel_affine(x, test.tensor("scale"), test.tensor("zero_point"),
                                            test.integer("axis"), test.integer("quant_min"),
                                            test.integer("quant_max"));
  });
}

Outputs run_learnable(const Case& test) {
  const Tensor scale = leaf(test.tensor("scale"));
  const Tensor zero_point = leaf(test.tensor("zero_point"));
  const std::int64_t min = test.integer("quant_min");
  const std::int64_t max = test.integer("quant_max");
  const double factor = test.number("grad_factor");
  Outputs outputs = forward_and_backward(test, [&](const Tensor& x) {
    if (test.has_attr("axis")) {
      return fake_quantize_learnable_per_channel_affine(x, scale, zero_point, test.integer("axis"),
                                                        min, max, factor);
    }
    return fake_quantize_learnable_per_tensor_affine(x, scale, zero_point, min, max, factor);
  });
  outputs.set("grad_scale", scale.grad());
  outputs.set("grad_zero_point", zero_point.grad());
  return outputs;
}

// Steps ------------------------------------------------------------------------------------------

struct Step {
  Tensor x;
  Tensor grad_out;
  bool observer_on;
  bool fake_quant_on;
};

const Value& member(const Object& object, std::string_view name) {
  const Value* value = object.find(name);
  if (value == nullptr) throw FormatError("steps: expected a member " + std::string(name));
  return *value;
}

bool flag_of(const Object& object, std::string_view name) {
  const Value& value = member(object, name);
  if (const auto* number = value.get_if<std::int64_t>()) return *number != 0;
  if (const auto* on = value.get_if<bool>()) return *on;
  throw FormatError("steps: expected 0 or 1 as " + std::string(name));
}

std::vector<Step> steps_of(const Case& test) {
  const Value* list = test.inputs.find("steps");
  const List* items = list == nullptr ? nullptr : list->get_if<List>();
  if (items == nullptr) throw FormatError(test.id + ": expected a list of steps");
  std::vector<Step> steps;
  for (const Value& item : *items) {
    const auto* object = item.get_if<Object>();
    if (object == nullptr) throw FormatError(test.id + ": expected objects as steps");
    steps.push_back({*member(*object, "x").get_if<Tensor>(),
                     *member(*object, "grad_out").get_if<Tensor>(), flag_of(*object, "observer_on"),
                     flag_of(*object, "fake_quant_on")});
  }
  return steps;
}

Object step_result(const Step& step, const std::function<Tensor(const Tensor&)>& forward) {
  const Tensor x = leaf(step.x);
  const Tensor y = forward(x);
  y.backward(step.grad_out);
  Object result;
  result.set("y", y.detach());
  result.set("grad_x", x.grad());
  return result;
}

Outputs as_steps(List results) {
  Outputs outputs;
  outputs.set("steps", std::move(results));
  return outputs;
}

Outputs run_fused(const Case& test) {
  FusedFakeQuantOptions options;
  const Arguments given(test.attrs);
  given("averaging_const", options.averaging_const);
  given("quant_min", options.quant_min);
  given("quant_max", options.quant_max);
  given("ch_axis", options.ch_axis);
  given("per_row_fake_quant", options.per_row_fake_quant);
  given("symmetric_quant", options.symmetric_quant);
  const std::vector<Step> steps = steps_of(test);
  const std::int64_t rows =
      options.per_row_fake_quant ? steps.at(0).x.size(options.ch_axis) : std::int64_t{1};
  const Dims range_sizes = options.per_row_fake_quant ? Dims{rows} : Dims{};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  MovingAverageState state{Tensor::full(range_sizes, kInfinity),
                           Tensor::full(range_sizes, -kInfinity), Tensor::ones({rows}),
                           Tensor::zeros({rows}, DType::Int32)};
  List results;
  for (const Step& step : steps) {
    options.observer_on = step.observer_on;
    options.fake_quant_on = step.fake_quant_on;
    Object result = step_result(
        step, [&](const Tensor& x) { return fused_moving_avg_obs_fake_quant(x, state, options); });
    result.set("running_min", state.running_min);
    result.set("running_max", state.running_max);
    result.set("scale", state.scale);
    result.set("zero_point", state.zero_point);
    results.emplace_back(std::move(result));
  }
  return as_steps(std::move(results));
}

struct NamedFactory {
  std::string_view name;
  ObserverFactory (*make)();
};

constexpr NamedFactory kFactories[] = {
    {"default_fake_quant", default_fake_quant},
    {"default_weight_fake_quant", default_weight_fake_quant},
    {"default_dynamic_fake_quant", default_dynamic_fake_quant},
    {"default_per_channel_weight_fake_quant", default_per_channel_weight_fake_quant},
    {"default_embedding_fake_quant", default_embedding_fake_quant},
    {"default_embedding_fake_quant_4bit", default_embedding_fake_quant_4bit},
    {"default_histogram_fake_quant", default_histogram_fake_quant},
    {"default_fused_act_fake_quant", default_fused_act_fake_quant},
    {"default_fused_wt_fake_quant", default_fused_wt_fake_quant},
    {"default_fused_per_channel_wt_fake_quant", default_fused_per_channel_wt_fake_quant},
    {"fused_wt_fake_quant_range_neg_127_to_127", fused_wt_fake_quant_range_neg_127_to_127},
    {"fused_per_channel_wt_fake_quant_range_neg_127_to_127",
     fused_per_channel_wt_fake_quant_range_neg_127_to_127},
    {"default_fixed_qparams_range_neg1to1_fake_quant",
     default_fixed_qparams_range_neg1to1_fake_quant},
    {"default_fixed_qparams_range_0to1_fake_quant", default_fixed_qparams_range_0to1_fake_quant},
};

std::shared_ptr<FakeQuantize> make_fake_quantizer(const Case& test) {
  const std::string name = test.text("name");
  for (const NamedFactory& factory : kFactories) {
    if (factory.name == name) return std::dynamic_pointer_cast<FakeQuantize>(factory.make()());
  }
  throw UnsupportedError("fake_quantize_module: name: no " + name + " here");
}

/// The case lists the settings that the name stands for.
void require_settings(const Case& test, const FakeQuantize& module) {
  const bool same =
      module.name() == test.text("class") && module.observer()->name() == test.text("observer") &&
      module.dtype() == test.dtype() &&
      module.qscheme() == qscheme_from_torch_name(test.text("qscheme")) &&
      module.quant_min() == test.integer("quant_min") &&
      module.quant_max() == test.integer("quant_max") &&
      is_per_channel(module.qscheme()) == test.flag("is_per_channel", false) &&
      (!is_per_channel(module.qscheme()) || module.ch_axis() == test.integer("ch_axis"));
  if (!same) {
    throw ArgumentError("fake_quantize_module: name: the settings of " + test.text("name") +
                        " are not those of the case");
  }
}

Outputs run_module(const Case& test) {
  const std::shared_ptr<FakeQuantize> module = make_fake_quantizer(test);
  require_settings(test, *module);
  List results;
  for (const Step& step : steps_of(test)) {
    module->enable_observer(step.observer_on);
    module->enable_fake_quant(step.fake_quant_on);
    Object result = step_result(step, [&](const Tensor& x) { return module->forward(x); });
    result.set("scale", module->scale());
    result.set("zero_point", module->zero_point());
    const ObservedQParams qparams = module->calculate_qparams();
    result.set("calculated_scale", qparams.scale);
    result.set("calculated_zero_point", qparams.zero_point);
    results.emplace_back(std::move(result));
  }
  return as_steps(std::move(results));
}

const Registration kOps{
    {"fake_quantize_per_tensor_affine", run_per_tensor},
    {"fake_quantize_per_channel_affine", run_per_channel},
    {"fake_quantize_learnable_per_tensor_affine", run_learnable},
    {"fake_quantize_learnable_per_channel_affine", run_learnable},
    {"fused_moving_avg_obs_fake_quant", run_fused},
    {"fake_quantize_module", run_module},
};

}  // namespace
}  // namespace quanta::conform
