// What every operation of the catalogue must do, whatever it calculates.

#include "quanta/ops/catalogue.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
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

TEST_CASE("catalogue: supports says what the rows say") {
  for (const OperationEntry& row : operations().entries()) {
    CAPTURE(row.name);
    std::string_view name = row.name;
    if (name.starts_with("quantized::")) name.remove_prefix(11);
    for (const DType dtype : row.dtypes) CHECK(supports(name, Device::cpu(), dtype));
  }
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
  for_each_sample([](const OperationEntry& row, DType, const Sample& sample) {
    if (is_undetermined(row.name)) return;
    const std::vector<Tensor> given = copies(sample.inputs);
    const std::size_t count = results_of(*sample.operation, copies(given)).size();
    for (std::size_t r = 0; r < count; ++r) {
      CAPTURE(r);
      const auto call = [&](const Tensor& x) {
        std::vector<Tensor> inputs = given;
        inputs[0] = x.clone();  // so that an operation in place has new memory
        return results_of(*sample.operation, inputs)[r];
      };
      const Tensor x = given[0].clone(given[0].suggested_format());
      const Tensor other = other_values(x);
      try {
        const std::unique_ptr<replay::ReplayPlan> plan = [&] {
          const replay::Recording recording(x);
          return std::make_unique<replay::ReplayPlan>(recording, x, call(x));
        }();
        CHECK(same_values(plan->run(x), call(x)));
        CHECK(same_values(plan->run(other), call(other)));
      } catch (const UnsupportedError& error) {
        // What follows from values cannot be replayed, and says so.
        CHECK(std::string_view(error.what()).starts_with("freeze: "));
      }
    }
  });
}

TEST_CASE("catalogue: each operation hands its gradient on or says that it has none") {
  for_each_sample([](const OperationEntry& row, DType dtype, const Sample& sample) {
    if (dtype != DType::Float32 && dtype != DType::Float64) return;
    std::vector<Tensor> inputs = copies(sample.inputs);
    inputs[0].set_requires_grad();
    const GradientUse use = sample.operation->gradient_use(1);
    std::vector<Tensor> results;
    try {
      results = results_of(*sample.operation, inputs);
    } catch (const Error& error) {
      CHECK(std::string_view(error.what()).find("gradient") != std::string_view::npos);
      CHECK(use.kind != GradientUse::Kind::Defined);
      return;
    }
    bool any = false;
    for (const Tensor& result : results) {
      if (!result.requires_grad()) continue;
      any = true;
      result.backward(Tensor::ones(result.sizes(), result.dtype()), true);
    }
    if (sample.operation->is_composition()) return;
    CHECK(any == (use.kind == GradientUse::Kind::Defined));
    if (!any) return;
    REQUIRE(inputs[0].grad().defined());
    CHECK(inputs[0].grad().sizes() == inputs[0].sizes());
    CHECK(inputs[0].grad().dtype() == inputs[0].dtype());
    CAPTURE(row.name);
  });
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

TEST_CASE("catalogue: an undefined first argument is refused by name") {
  for_each_sample([](const OperationEntry& row, DType, const Sample& sample) {
    std::vector<Tensor> inputs = copies(sample.inputs);
    inputs[0] = Tensor();
    std::string_view name = row.name;
    if (name.starts_with("quantized::")) name.remove_prefix(11);
    try {
      results_of(*sample.operation, inputs);
      CHECK_MESSAGE(false, "accepted");
    } catch (const Error& error) {
      CAPTURE(error.what());
      CHECK(std::string_view(error.what()).find("undefined") != std::string_view::npos);
    }
  });
}

TEST_CASE("catalogue: other dtypes are refused") {
  for (const OperationEntry& row : operations().entries()) {
    for (const DType dtype : kTypes) {
      if (row.takes(dtype)) continue;
      CAPTURE(row.name);
      CAPTURE(to_string(dtype));
      const Sample sample = row.sample(row.dtypes.front());
      std::vector<Tensor> inputs = copies(sample.inputs);
      inputs[0] = sample_tensor(inputs[0].sizes(), dtype);
      CHECK_THROWS_AS(results_of(*sample.operation, inputs), Error);
    }
  }
}

}  // namespace quanta
