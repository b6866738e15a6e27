#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"
#include "quanta/observers/defaults.h"
#include "quanta/runtime/device.h"

// Takes a const model; may run in many threads at once.

namespace quanta {

/// One thing that will not work, or will not be what it seems, and where.
struct Problem {
  enum class Severity : std::uint8_t {
    Error,  ///< fails, now or when the converted model runs
    Note,   ///< works, but in float, or with less accuracy than it could
  };
  std::string path;
  std::string text;
  Severity severity = Severity::Error;
};

/// Everything in the tree that would fail or stay in float by mistake once the model is prepared,
/// converted and run on `device`: no QuantStub or DeQuantStub, a BatchNorm that was not fused and
/// has no quantized form, train mode (unless it is made for training with quantization in the
/// loop), observers without data (once prepared), layers that their QConfig cannot serve, unsupported
/// types. In a graph::Model, where prepare_jit places the stubs, train mode and observers are what
/// counts. Runs nothing.
std::vector<Problem> check(const nn::Module& model, Device device = Device::cpu());

namespace detail {
/// What preparing, running, converting and running `copy` of a float model shows.
std::vector<Problem> check_by_running(nn::Module& copy, std::span<const Tensor> example,
                                      const QConfigMapping& qconfigs);
}  // namespace detail

/// The same of a float model, with what only a run can show: a copy is prepared with `qconfigs`, run
/// on `example` (what one call takes), converted and run. Float operations and modules within the
/// quantized part are notes, whatever throws or warns (a FloatFunctional that is called twice) are errors.
template <typename T>
requires std::is_base_of_v<nn::Module, T> std::vector<Problem> check(
    const T& model, std::span<const Tensor> example,
    const QConfigMapping& qconfigs = get_default_qconfig()) {
  std::vector<Problem> problems = check(static_cast<const nn::Module&>(model));
  T copy = nn::deep_copy(model);
  for (Problem& problem : detail::check_by_running(copy, example, qconfigs)) {
    problems.push_back(std::move(problem));
  }
  return problems;
}
template <typename T>
requires std::is_base_of_v<nn::Module, T> std::vector<Problem> check(
    const T& model, const Tensor& example, const QConfigMapping& qconfigs = get_default_qconfig()) {
  return check(model, std::span<const Tensor>(&example, 1), qconfigs);
}

/// A line for each: "error: 'conv1': ...".
std::string to_string(std::span<const Problem> problems);

}  // namespace quanta
