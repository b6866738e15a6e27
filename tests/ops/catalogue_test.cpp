// What every operation of the catalogue must do, whatever it calculates.

#include "quanta/ops/catalogue.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "quanta/ops/quantize.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/support.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/gradcheck.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/replay_plan.h"
#include "support/capture_binding.h"
#include "support/threads.h"

namespace quanta {
namespace {

constexpr std::array kTypes{DType::Float32,      DType::Float64,    DType::Float16, DType::BFloat16,
                            DType::Float8E4M3FN, DType::Float8E5M2, DType::UInt8,   DType::Int8,
                            DType::Int16,        DType::UInt16,     DType::Int32,   DType::Int64,
                            DType::Bool,         DType::QUInt8,     DType::QInt8,   DType::QInt32,
                            DType::QUInt4x2,     DType::QUInt2x4};

/// Calls function(row, dtype, sample) for each row and dtype that it takes.
template <typename Function>
void for_each_sample(Function&& function) {
  for (const OperationEntry& row : operations().entries()) {
    for (const DType dtype : row.dtypes) {
      CAPTURE(row.name);
      CAPTURE(to_string(dtype));
      function(row, dtype, row.sample(dtype));
    }
  }
}

/// torch's name of a row.
std::string_view plain_name(std::string_view name) {
  return name.starts_with("quantized::") ? name.substr(11) : name;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Whether the text begins with the name of the operation or of one that it is made of:
/// "conv2d: x: ..." for conv2d_relu.
bool names_operation(std::string_view text, const OperationEntry& row) {
  const std::string_view name = plain_name(text);
  const std::string_view start = name.substr(0, name.find(": "));
  if (start.empty()) return false;
  if (plain_name(row.name).starts_with(start)) return true;
  return std::ranges::any_of(operations().entries(), [&](const OperationEntry& other) {
    return plain_name(other.name) == start;
  });
}

/// Whether two calls may give different values: random numbers, memory as it is found.
bool is_undetermined(std::string_view name) {
  return name == "dropout" || name == "empty_quantized" || name == "resize_";
}

/// The arguments again, in memory of their own: some operations write to them.
std::vector<Tensor> copies(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> result;
  for (const Tensor& x : inputs) result.push_back(x.defined() ? x.clone() : x);
  return result;
}

std::vector<Tensor> results_of(const Operation& operation, const std::vector<Tensor>& inputs) {
  const Results results = run_all(operation, std::span<const Tensor>(inputs));
  return {results.begin(), results.end()};
}

/// NaN equals NaN.
bool same_values(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.sizes() != b.sizes()) return false;
  if (a.is_quantized() && !(a.impl()->quantizer == b.impl()->quantizer)) return false;
  if (a.equal(b)) return true;
  if (!a.is_floating_point()) return false;
  const std::vector<float> left = a.to_float_vector();
  const std::vector<float> right = b.to_float_vector();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] != right[i] && (left[i] == left[i] || right[i] == right[i])) return false;
  }
  return true;
}

/// Integers and codes exactly; floats but for another order of sums.
bool close_values(const Tensor& a, const Tensor& b) {
  if (same_values(a, b)) return true;
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype() || !a.is_floating_point()) return false;
  constexpr float kRelative = 1e-5F;
  const std::vector<float> left = a.to_float_vector();
  const std::vector<float> right = b.to_float_vector();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (std::fabs(left[i] - right[i]) > kRelative * (1.0F + std::fabs(right[i]))) return false;
  }
  return true;
}

/// The same values with other strides: dimensions lie in memory in reverse.
Tensor reversed_strides(const Tensor& x) {
  Dims order;
  for (std::int64_t d = x.dim(); d-- > 0;) order.push_back(d);
  return x.permute(order).clone(MemoryFormat::Contiguous).permute(order);
}

bool has_whole_bytes(const Tensor& x) { return !is_sub_byte(x.dtype()); }

/// The elements in reverse: other values in each place, and all of them valid.
Tensor other_values(const Tensor& x) {
  if (x.numel() < 2 || x.dim() == 0 || !has_whole_bytes(x)) return x.clone();
  return flip(x.contiguous(), {0}).clone(x.suggested_format());
}

}  // namespace

TEST_CASE("catalogue: each row has a sample call of its name for each of its dtypes") {
  CHECK(operations().entries().size() > 20);
  for_each_sample([](const OperationEntry& row, DType dtype, const Sample& sample) {
    CHECK(sample.operation->name() == row.name);
    REQUIRE_FALSE(sample.inputs.empty());
    CHECK(sample.inputs[0].dtype() == dtype);
    CHECK(row.header.starts_with("quanta/ops/"));
    CHECK_FALSE(results_of(*sample.operation, sample.inputs).empty());
  });
}

TEST_CASE("catalogue: supports says what the rows say and no more") {
  // The dtype of the packed table; the first argument is the indices.
  const std::set<std::string_view> of_tables{"embedding_byte", "embedding_4bit",
                                             "embedding_bag_byte", "embedding_bag_4bit"};
  for (const OperationEntry& row : operations().entries()) {
    const std::string_view name = plain_name(row.name);
    for (const DType dtype : kTypes) {
      CAPTURE(row.name);
      CAPTURE(to_string(dtype));
      bool any = false;
      for (const OperationEntry& other : operations().entries()) {
        any = any || (plain_name(other.name) == name && other.takes(dtype));
      }
      if (any || !of_tables.contains(name)) CHECK(supports(name, Device::cpu(), dtype) == any);
      bool any_on_cuda = false;
      for (const OperationEntry& other : operations().entries()) {
        any_on_cuda = any_on_cuda || (plain_name(other.name) == name && other.takes_on_cuda(dtype));
      }
      CHECK(supports(name, Device::cuda(), dtype) == any_on_cuda);
    }
  }
}

TEST_CASE("supports: torch's names for one rank, dtypes of tables, and what there is not") {
  CHECK(supports("batch_norm1d", Device::cpu(), DType::Float32));
  CHECK(supports("batch_norm3d_relu", Device::cpu(), DType::QInt8));
  CHECK_FALSE(supports("batch_norm3d_relu", Device::cpu(), DType::Float32));
  CHECK(supports("embedding_byte", Device::cpu(), DType::QUInt8));
  CHECK(supports("embedding_bag_4bit", Device::cpu(), DType::QUInt4x2));
  CHECK_FALSE(supports("embedding_4bit", Device::cpu(), DType::QUInt8));
  CHECK_FALSE(supports("conv4d", Device::cpu(), DType::Float32));
  CHECK(supports("conv2d", Device::cuda(), DType::QUInt8));
  CHECK(supports("conv2d", Device::cuda(), DType::Float32));
  CHECK_FALSE(supports("conv2d", Device::cuda(), DType::Float64));
}

TEST_CASE("catalogue: too few and too many arguments are refused by name and number") {
  for_each_sample([](const OperationEntry& row, DType, const Sample& sample) {
    const Operation& operation = *sample.operation;
    const ArgumentCount count = operation.argument_count();
    CHECK(count.takes(sample.inputs.size()));
    const auto expect_refused = [&](std::size_t given) {
      std::vector<Tensor> inputs = copies(sample.inputs);
      inputs.resize(given, inputs[0]);
      const std::string start = std::string(row.name) + ": arguments: expected ";
      const std::string end = ", got " + std::to_string(given);
      try {
        results_of(operation, inputs);
        CHECK_MESSAGE(false, "accepted " << given);
      } catch (const ArgumentError& error) {
        CAPTURE(std::string(error.what()));
        CHECK(std::string_view(error.what()).starts_with(start));
        CHECK(std::string_view(error.what()).ends_with(end));
      }
    };
    REQUIRE(count.least > 0);
    expect_refused(count.least - 1);
    if (count.most != ArgumentCount::kNoLimit) expect_refused(count.most + 1);
  });
}

TEST_CASE("catalogue: attributes can be read and written back") {
  for_each_sample([](const OperationEntry& row, DType, const Sample& sample) {
    const std::shared_ptr<Operation> copy = sample.operation->clone();
    for (const AttributeInfo& info : copy->attributes()) {
      CAPTURE(info.name);
      if (info.set == nullptr) continue;
      set_attribute(*copy, info.name, attribute_of(*sample.operation, info.name));
    }
    CHECK(*copy == *sample.operation);
    CHECK(to_string(*copy).starts_with(row.name));
    CHECK_THROWS_AS(attribute_of(*copy, "no such attribute"), ArgumentError);
  });
}

TEST_CASE("catalogue: each operation gives the same when it is recorded and replayed") {
  // Sizes or parameters of their results follow from values.
  const std::set<std::string_view> refused{"non_max_suppression", "nonzero",
                                           "quantize_per_tensor_dynamic", "unique"};
  for_each_sample([&](const OperationEntry& row, DType, const Sample& sample) {
    if (is_undetermined(row.name)) return;
    const std::vector<Tensor> given = copies(sample.inputs);
    const std::size_t count = results_of(*sample.operation, copies(given)).size();
    // Each argument in turn is what another run has other values in.
    for (std::size_t a = 0; a < given.size(); ++a) {
      if (!given[a].defined()) continue;
      for (std::size_t r = 0; r < count; ++r) {
        CAPTURE(a);
        CAPTURE(r);
        const auto call = [&](const Tensor& x) {
          std::vector<Tensor> inputs = given;
          inputs[a] = x;
          inputs[0] = inputs[0].clone();  // so that an operation in place has new memory
          return results_of(*sample.operation, inputs)[r];
        };
        const Tensor x = given[a].clone(given[a].suggested_format());
        const Tensor other = other_values(x);
        bool is_refused = false;
        try {
          const std::unique_ptr<replay::ReplayPlan> plan = [&] {
            const replay::Recording recording(x);
            return std::make_unique<replay::ReplayPlan>(recording, x, call(x));
          }();
          CHECK(same_values(plan->run(x), call(x)));
          Tensor wanted;
          try {
            wanted = call(other);
          } catch (const ArgumentError&) {  // offsets that fall
            CHECK_THROWS_AS(plan->run(other), ArgumentError);
            continue;
          }
          CHECK(same_values(plan->run(other), wanted));
        } catch (const UnsupportedError& error) {
          is_refused = true;
          CHECK(std::string_view(error.what()).starts_with("freeze: "));
        }
        // Another argument may decide about sizes and parameters, and says so.
        if (a == 0) CHECK(is_refused == refused.contains(row.name));
      }
    }
  });
}

// What belongs to a row of `first`, which has several: tensors of its rank with as many.
std::vector<Tensor> row_of(const std::vector<Tensor>& inputs, std::int64_t row) {
  std::vector<Tensor> result;
  for (const Tensor& x : inputs) {
    const bool is_batch =
        x.defined() && x.dim() == inputs[0].dim() && x.size(0) == inputs[0].size(0);
    result.push_back(is_batch ? x.narrow(0, row, 1) : x);
  }
  return result;
}

TEST_CASE(
    "catalogue: operations that work by rows give a row alone what they give it among others") {
  std::set<std::string_view> checked;
  for_each_sample([&](const OperationEntry& row, DType, const Sample& sample) {
    const Tensor& first = sample.inputs[0];
    const bool is_divisible = sample.operation->works_by_rows() && first.defined() &&
                              first.dim() > 0 && first.size(0) > 1 && !is_sub_byte(first.dtype()) &&
                              !is_per_channel(first.impl()->quantizer.scheme);
    if (!is_divisible) return;
    const std::vector<Tensor> together = results_of(*sample.operation, sample.inputs);
    for (std::int64_t i = 0; i < first.size(0); ++i) {
      CAPTURE(i);
      const std::vector<Tensor> alone = results_of(*sample.operation, row_of(sample.inputs, i));
      for (std::size_t r = 0; r < together.size(); ++r) {
        REQUIRE(together[r].size(0) == first.size(0));
        CHECK(same_values(alone[r], together[r].narrow(0, i, 1)));
      }
    }
    // A plan may run it on one thread where the module had several.
    for (const int threads : {1, 2, 7}) {
      const test::Threads guard(threads);
      const std::vector<Tensor> again = results_of(*sample.operation, sample.inputs);
      for (std::size_t r = 0; r < together.size(); ++r) CHECK(same_values(again[r], together[r]));
    }
    checked.insert(row.name);
  });
  for (const std::string_view name :
       {"quantize_per_tensor", "dequantize", "quantized::conv2d", "quantized::linear",
        "quantized::add", "quantized::cat", "quantized::hardswish", "max_pool2d", "interpolate"}) {
    CAPTURE(name);
    CHECK(checked.contains(name));
  }
}

TEST_CASE("catalogue: each operation hands its gradient on or says that it has none") {
  // Parameters that get none, and no error, as in torch and ModelOpt.
  const std::map<std::string_view, std::set<std::size_t>> left_out{
      {"fake_quantize_per_tensor_affine", {1, 2}},
      {"fake_quantize_per_channel_affine", {1, 2}},
      {"static_fp4", {2}}};
  for_each_sample([&](const OperationEntry& row, DType, const Sample& sample) {
    for (std::size_t a = 0; a < sample.inputs.size(); ++a) {
      if (left_out.contains(row.name) && left_out.at(row.name).contains(a)) continue;
      std::vector<Tensor> inputs = copies(sample.inputs);
      if (!inputs[a].defined()) continue;
      if (inputs[a].dtype() != DType::Float32 && inputs[a].dtype() != DType::Float64) continue;
      CAPTURE(row.name);
      CAPTURE(a);
      inputs[a].set_requires_grad();
      std::shared_ptr<const Operation> form = sample.operation->for_gradient(1ULL << a);
      if (!form) form = sample.operation;
      const bool is_composed = form->is_composition();
      const GradientUse::Kind kind = form->gradient_use(1ULL << a).kind;
      std::vector<Tensor> results;
      try {
        results = results_of(*sample.operation, inputs);
      } catch (const Error& error) {
        CAPTURE(std::string(error.what()));
        CHECK(contains(error.what(), "gradient"));
        // An operation in place refuses to change what requires one.
        CHECK((is_composed || kind == GradientUse::Kind::Unsupported || row.name.ends_with('_')));
        continue;
      }
      if (!is_composed) CHECK(kind != GradientUse::Kind::Unsupported);
      bool any = false;
      for (const Tensor& result : results) {
        // No float loses its gradient in silence.
        CHECK(result.requires_grad() == result.is_floating_point());
        if (!result.requires_grad()) continue;
        any = true;
        result.backward(Tensor::ones(result.sizes(), result.dtype()), true);
      }
      if (!is_composed) CHECK(any == (kind == GradientUse::Kind::Defined));
      if (!any) continue;
      REQUIRE(inputs[a].grad().defined());
      CHECK(inputs[a].grad().sizes() == inputs[a].sizes());
      CHECK(inputs[a].grad().dtype() == inputs[a].dtype());
    }
  });
}

TEST_CASE("catalogue: gradients are those of finite differences") {
  // Rounding has none of its own, so that they pass the gradient straight through; rows of padding
  // get none.
  const std::set<std::string_view> straight_through{
      "quanta/ops/block_quant.h", "quanta/ops/fake_quantize.h", "quanta/ops/quantize_affine.h",
      "quanta/ops/tensor_quant.h"};
  std::size_t checked = 0;
  for (const OperationEntry& row : operations().entries()) {
    if (!row.takes(DType::Float64) || is_undetermined(row.name)) continue;
    if (straight_through.contains(row.header) || row.name.starts_with("embedding")) continue;
    const Sample sample = row.sample(DType::Float64);
    for (std::size_t a = 0; a < sample.inputs.size(); ++a) {
      CAPTURE(row.name);
      CAPTURE(a);
      if (!sample.inputs[a].defined() || sample.inputs[a].dtype() != DType::Float64) continue;
      const auto call = [&](const Tensor& x) {
        std::vector<Tensor> inputs = sample.inputs;
        inputs[a] = x;
        return results_of(*sample.operation, inputs);
      };
      const Tensor x = sample.inputs[a].clone(MemoryFormat::Contiguous).set_requires_grad();
      std::vector<Tensor> results;
      try {
        results = call(x);
      } catch (const Error&) {
        continue;  // it has none, and says so
      }
      // There may be more results, which only the gradient needs.
      const std::size_t count = row.name == "batch_norm_train" ? 1 : call(x.detach()).size();
      for (std::size_t r = 0; r < count; ++r) {
        CAPTURE(r);
        if (!results[r].requires_grad() || results[r].dtype() != DType::Float64) continue;
        ++checked;
        CHECK_NOTHROW(autograd::gradcheck(
            [&](std::span<const Tensor> given) { return call(given[0])[r]; }, {x}));
      }
    }
  }
  CHECK(checked > 80);
}

TEST_CASE("catalogue: what networks are trained with has a gradient") {
  for (const std::string_view name :
       {"relu", "hardswish", "add", "mul", "cat", "conv2d", "conv_transpose2d", "linear", "matmul",
        "batch_norm_train", "layer_norm", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d",
        "softmax", "cross_entropy", "mse_loss", "mean", "fake_quantize_per_tensor_affine"}) {
    CAPTURE(name);
    const OperationEntry* row = operations().find(name);
    REQUIRE(row != nullptr);
    const Sample sample = row->sample(DType::Float32);
    sample.inputs[0].set_requires_grad();
    CHECK(results_of(*sample.operation, sample.inputs)[0].requires_grad());
  }
}

TEST_CASE("catalogue: other strides of the first argument change no value") {
  for_each_sample([](const OperationEntry& row, DType, const Sample& sample) {
    const Tensor& x = sample.inputs[0];
    if (is_undetermined(row.name) || x.dim() < 2 || !has_whole_bytes(x)) return;
    const std::vector<Tensor> wanted = results_of(*sample.operation, copies(sample.inputs));
    for (const bool channels_last : {false, true}) {
      if (channels_last && (x.dim() < 3 || x.dim() > 5)) continue;
      std::vector<Tensor> inputs = copies(sample.inputs);
      inputs[0] = channels_last ? x.clone(MemoryFormat::ChannelsLast) : reversed_strides(x);
      const std::vector<Tensor> got = results_of(*sample.operation, inputs);
      REQUIRE(got.size() == wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(close_values(got[i], wanted[i]));
    }
  });
}

TEST_CASE("catalogue: an empty first argument gives a result or an error") {
  for_each_sample([](const OperationEntry& row, DType, const Sample& sample) {
    const Tensor& x = sample.inputs[0];
    if (x.dim() == 0 || !has_whole_bytes(x)) return;
    for (std::int64_t d = 0; d < x.dim(); ++d) {
      std::vector<Tensor> inputs = copies(sample.inputs);
      try {
        inputs[0] = x.narrow(d, 0, 0).clone();
        results_of(*sample.operation, inputs);
      } catch (const Error& error) {
        CAPTURE(row.name);
        CHECK(std::string_view(error.what()).find(": ") != std::string_view::npos);
      }
    }
  });
}

TEST_CASE("catalogue: each argument that is undefined is refused by name or may be left out") {
  // Biases, weights of norms and losses, masks, zero points, states: PyTorch's None. All other
  // arguments have to be there.
  const std::map<std::string_view, std::set<std::size_t>> optional{
      {"batch_norm", {3}},
      {"batch_norm_train", {3, 5, 6}},
      {"binary_cross_entropy_with_logits", {2, 3}},
      {"conv1d", {2}},
      {"conv2d", {2}},
      {"conv3d", {2}},
      {"conv_integer", {2, 3}},
      {"conv_transpose1d", {2}},
      {"conv_transpose2d", {2}},
      {"conv_transpose3d", {2}},
      {"cross_entropy", {2}},
      {"dequantize_linear", {2}},
      {"dynamic_block_quant", {1}},
      {"embedding_bag", {3}},
      {"embedding_bag_4bit", {2}},
      {"embedding_bag_byte", {2}},
      {"fake_tensor_quant", {2}},
      {"general_recurrent", {2, 5}},
      {"group_norm", {1}},
      {"index", {2}},       // all of that dimension
      {"index_put_", {3}},  // the same
      {"instance_norm", {1}},
      {"layer_norm", {1}},
      {"linear", {2}},
      {"matmul_integer", {2}},
      {"nll_loss", {2}},
      {"quantize_linear", {2}},
      {"quantized::group_norm", {1}},
      {"quantized::instance_norm", {1}},
      {"quantized::layer_norm", {1}},
      {"rms_norm", {1}},
      {"scaled_dot_product_attention", {3}},
      {"scaled_e4m3", {1, 2}},
      {"scatter_cache", {2}},
      {"static_fp4", {2}}};
  std::map<std::string_view, std::set<std::size_t>> accepted;
  std::size_t refused = 0;
  for_each_sample([&](const OperationEntry& row, DType, const Sample& sample) {
    for (std::size_t a = 0; a < sample.inputs.size(); ++a) {
      if (!sample.inputs[a].defined()) continue;
      CAPTURE(a);
      const bool may_be_left_out = optional.contains(row.name) && optional.at(row.name).contains(a);
      for (const bool needs_gradient : {false, true}) {
        CAPTURE(needs_gradient);
        std::vector<Tensor> inputs = copies(sample.inputs);
        inputs[a] = Tensor();
        for (const Tensor& x : inputs) {
          const bool is_float = x.defined() && x.dtype() == DType::Float32;
          if (needs_gradient && is_float) x.set_requires_grad();
        }
        try {
          const std::vector<Tensor> results = results_of(*sample.operation, inputs);
          CHECK(may_be_left_out);
          if (!needs_gradient) accepted[row.name].insert(a);
          for (const Tensor& result : results) {
            if (!result.requires_grad()) continue;
            result.backward(Tensor::ones(result.sizes(), result.dtype()), true);
          }
        } catch (const ArgumentError& error) {
          const std::string text = error.what();
          CAPTURE(text);
          CHECK(names_operation(text, row));
          // The values of index_put_ no longer fit; without a gradient one could be refused.
          if (may_be_left_out) {
            CHECK((row.name == "index_put_" || needs_gradient));
            continue;
          }
          const bool is_in_place = needs_gradient && contains(text, "gradient");
          CHECK((is_in_place || contains(text, "undefined") || contains(text, "got none")));
          ++refused;
        } catch (const UnsupportedError& error) {
          CHECK(needs_gradient);  // what has none says so first
          CHECK(contains(error.what(), "gradient"));
        }
      }
    }
  });
  for (const auto& [name, arguments] : optional) {
    CAPTURE_BINDING(name);
    if (name != "index_put_") CHECK(accepted[name] == arguments);
  }
  CHECK(refused > 2000);
}

TEST_CASE("catalogue: other dtypes are refused by name") {
  for (const OperationEntry& row : operations().entries()) {
    for (const DType dtype : kTypes) {
      if (row.takes(dtype)) continue;
      CAPTURE(row.name);
      CAPTURE(to_string(dtype));
      const Sample sample = row.sample(row.dtypes.front());
      std::vector<Tensor> inputs = copies(sample.inputs);
      inputs[0] = sample_tensor(inputs[0].sizes(), dtype);
      std::string text;
      try {
        results_of(*sample.operation, inputs);
      } catch (const ArgumentError& error) {
        text = error.what();
      } catch (const UnsupportedError& error) {
        text = error.what();
      }
      CAPTURE(text);
      CHECK(names_operation(text, row));
    }
  }
}

}  // namespace quanta
