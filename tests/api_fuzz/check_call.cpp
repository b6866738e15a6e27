#include "check_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/random.h"
#include "random_tensor.h"
#include "reference.h"

namespace quanta::api_fuzz {
namespace {

constexpr std::size_t kMostBytes = std::size_t{8} << 20U;

using Tensors = std::vector<Tensor>;

// What a call did: its results, or the text of what it threw.
struct Attempt {
  Tensors results;
  std::string refusal;
  std::string finding;

  bool gave_results() const { return refusal.empty() && finding.empty(); }
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <typename Function>
Attempt attempt(Function&& function) {
  Attempt made;
  try {
    made.results = function();
  } catch (const InternalError& error) {
    made.finding = fmt::format("InternalError: {}", error.what());
  } catch (const BackendError& error) {
    (contains(error.what(), "memory") ? made.refusal : made.finding) =
        fmt::format("BackendError: {}", error.what());
  } catch (const Error& error) {
    made.refusal = error.what();
    if (made.refusal.empty()) made.finding = "an error without a text";
  } catch (const std::exception& error) {
    made.finding = fmt::format("{}: {}", typeid(error).name(), error.what());
  } catch (...) {
    made.finding = "something that is no std::exception was thrown";
  }
  return made;
}

bool is_undetermined(std::string_view name) {
  return name == "empty_quantized" || name == "resize_";
}
// Or writes to some of what it is given: running statistics.
bool works_in_place(std::string_view name) {
  return name.ends_with('_') || name == "batch_norm_train";
}
// Averages of codes are rounded as torch's kernel for that order in memory does (ops/pooling).
bool rounds_by_layout(const Call& call) {
  const std::string_view name = call.entry->name;
  return std::ranges::any_of(call.inputs,
                             [](const Tensor& x) { return x.defined() && x.is_quantized(); }) &&
         (contains(name, "avg_pool") || contains(name, "mean") || contains(name, "interpolate") ||
          name == "std");
}
// The second result is the gradient's own: bits in the order of memory, with gaps.
bool keeps_mask(std::string_view name) { return name.starts_with("fake_quantize_per_"); }

Attempt run_with(const Call& call, const Tensors& inputs, int threads) {
  return attempt([&] {
    set_num_threads(threads);
    manual_seed(7);
    const Results results = run_all(*call.operation, std::span<const Tensor>(inputs));
    Tensors made(results.begin(), results.end());
    if (keeps_mask(call.entry->name) && made.size() > 1) made.resize(1);
    return made;
  });
}

// Whether the results would take too much memory to calculate them, as infer() says.
bool is_large(const Call& call, std::string& finding) {
  if (call.operation->is_composition()) {
    return std::ranges::any_of(call.inputs, [](const Tensor& x) {
      return x.defined() &&
             std::ranges::any_of(x.sizes(), [](std::int64_t n) { return n > 1 << 20; });
    });
  }
  if (!call.operation->argument_count().takes(call.inputs.size())) return false;
  bool large = false;
  const Attempt inferred = attempt([&] {
    std::vector<const Tensor*> pointers;
    for (const Tensor& x : call.inputs) pointers.push_back(&x);
    Results results;
    call.operation->infer(Arguments(pointers.data(), pointers.size()), results);
    for (const Tensor& result : results.span()) {
      for (const std::int64_t size : result.sizes()) {
        if (size < 0) finding = fmt::format("infer gives sizes {}", to_string(result.sizes()));
      }
      large = large || result.nbytes() > kMostBytes;
    }
    return Tensors();
  });
  if (!inferred.finding.empty()) finding = inferred.finding;
  return large;
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
    case DType::Float32:
      return 1e-4;
    case DType::Float16:
      return 2e-3;
    case DType::BFloat16:
      return 1.6e-2;
    default:
      return 0.13;
  }
}

// What differs, or nothing. Codes are equal where the inputs are; floats but for the order of sums
// and, with `loose`, where numbers overflow. A code that was rounded from such floats may be the
// next one.
std::string difference(const Tensor& got, const Tensor& wanted, bool loose) {
  if (got.dtype() != wanted.dtype()) {
    return fmt::format("{} and {}", to_string(got.dtype()), to_string(wanted.dtype()));
  }
  if (got.sizes() != wanted.sizes()) {
    return fmt::format("sizes {} and {}", to_string(got.sizes()), to_string(wanted.sizes()));
  }
  if (got.is_quantized() && !(got.impl()->quantizer == wanted.impl()->quantizer)) {
    if (!loose) return "other quantization parameters";
    return {};
  }
  if (got.is_floating_point()) {
    if (loose) return {};
    const std::vector<float> left = got.to_float_vector();
    const std::vector<float> right = wanted.to_float_vector();
    double most = 0.0;
    for (const float value : right) {
      if (std::isfinite(value)) most = std::max(most, std::fabs(static_cast<double>(value)));
    }
    const double allowed = tolerance_of(got.dtype()) * (most + 1e-30);
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
      if (std::fabs(static_cast<double>(left[i]) - static_cast<double>(right[i])) <= allowed)
        continue;
      return fmt::format("element {}: {} and {}", i, left[i], right[i]);
    }
    return {};
  }
  const std::vector<std::int64_t> left = got.to_int64_vector();
  const std::vector<std::int64_t> right = wanted.to_int64_vector();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i]) continue;
    if (loose) return {};
    return fmt::format("element {}: {} and {}", i, left[i], right[i]);
  }
  return {};
}

std::string difference(const Attempt& got, const Attempt& wanted, bool loose) {
  if (!got.finding.empty()) return got.finding;
  if (!wanted.finding.empty()) return wanted.finding;
  if (got.gave_results() != wanted.gave_results()) {
    return got.gave_results() ? fmt::format("results and a refusal: {}", wanted.refusal)
                              : fmt::format("a refusal and results: {}", got.refusal);
  }
  if (!got.gave_results()) return {};
  if (got.results.size() != wanted.results.size()) return "another number of results";
  for (std::size_t i = 0; i < got.results.size(); ++i) {
    if (!got.results[i].defined() && !wanted.results[i].defined()) continue;
    if (got.results[i].defined() != wanted.results[i].defined()) return "an undefined result";
    const std::string text = difference(got.results[i], wanted.results[i], loose);
    if (!text.empty()) return fmt::format("result {}: {}", i, text);
  }
  return {};
}

Tensors contiguous_copies(const Tensors& inputs) {
  Tensors copies;
  for (const Tensor& x : inputs) {
    copies.push_back(x.defined() ? x.clone(MemoryFormat::Contiguous) : x);
  }
  return copies;
}

std::vector<std::vector<std::byte>> bytes_of_all(const Tensors& inputs) {
  std::vector<std::vector<std::byte>> bytes;
  for (const Tensor& x : inputs)
    bytes.push_back(x.defined() ? bytes_of(x) : std::vector<std::byte>{});
  return bytes;
}

// Sums of floats depend on their order, which may follow from the strides; codes that are made of
// them may be the neighbours.
bool has_floats(const Call& call) {
  return std::ranges::any_of(call.inputs,
                             [](const Tensor& x) { return x.defined() && x.is_floating_point(); });
}

std::string check_gradient(const Call& call, const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& x : inputs) {
    const bool differentiable = x.defined() && x.is_floating_point();
    leaves.push_back(differentiable ? x.clone().set_requires_grad() : x);
  }
  return attempt([&] {
           const Results results = run_all(*call.operation, std::span<const Tensor>(leaves));
           for (const Tensor& result : results.span()) {
             if (!result.defined() || !result.requires_grad()) continue;
             result.backward(Tensor::ones(result.sizes(), result.dtype()), true);
           }
           for (const Tensor& leaf : leaves) {
             if (!leaf.defined() || !leaf.requires_grad() || !leaf.grad().defined()) continue;
             if (leaf.grad().sizes() != leaf.sizes() || leaf.grad().dtype() != leaf.dtype()) {
               throw InternalError("a gradient of other sizes or dtype");
             }
           }
           return Tensors();
         })
      .finding;
}

}  // namespace

Outcome check_call(const Call& call) {
  Outcome outcome;
  std::string finding;
  if (is_large(call, finding)) {
    if (!finding.empty()) outcome.finding = finding;
    return outcome;
  }
  const auto found = [&](std::string_view what, const std::string& text) {
    if (outcome.finding || text.empty()) return;
    outcome.finding = fmt::format("{}: {}", what, text);
  };
  found("infer", finding);

  const std::string_view name = call.entry->name;
  const bool in_place = works_in_place(name);
  const Tensors copies = contiguous_copies(call.inputs);
  const auto before = bytes_of_all(call.inputs);
  const Attempt first = run_with(call, call.inputs, 1);
  found("the call", first.finding);
  outcome.kind = first.gave_results() ? Outcome::Kind::Calculated : Outcome::Kind::Refused;
  if (!(in_place && first.gave_results()) && bytes_of_all(call.inputs) != before) {
    found("the call", first.gave_results() ? "changed an input" : "failed and changed an input");
  }

  // Writing to elements that share memory is refused, and one tensor as two arguments is two copies.
  if (!in_place && !is_undetermined(name)) {
    const bool loose = !call.plain_values || rounds_by_layout(call) ||
                       (has_floats(call) && first.gave_results() && !first.results.empty() &&
                        !first.results[0].is_floating_point());
    const Attempt dense = run_with(call, copies, 1);
    found("as given and contiguous", difference(first, dense, loose));
    const Attempt threads = run_with(call, contiguous_copies(call.inputs), 2);
    found("with one thread and two", difference(dense, threads, loose));
    if (first.gave_results() && !first.results.empty() && call.plain_values) {
      if (const auto wanted = reference_of(call)) {
        outcome.by_reference = true;
        found("as calculated and by the formula", difference(first.results[0], *wanted, false));
      }
    }
    if (call.wants_gradient) found("the gradient", check_gradient(call, copies));
  }
  return outcome;
}

}  // namespace quanta::api_fuzz
