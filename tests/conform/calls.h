#pragma once

// Runners of functions and methods, from the names of their parameters.

#include <functional>
#include <initializer_list>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments.h"
#include "quanta/ops/reduce.h"
#include "registry.h"

namespace quanta::conform {

/// Names a type, for overloads.
template <typename T>
struct Type {};

/// What is made from inputs and attributes together, such as packed weights: there is
/// made_from(test, Type<T>).
template <typename T>
concept MadeFromCase = requires(const Case& test) {
  made_from(test, Type<T>());
};

// What a parameter of type T is kept in.
template <typename T>
struct Kept {
  using Value = std::remove_cvref_t<T>;
};
template <typename T>
struct Kept<std::span<const T>> {
  using Value = std::vector<T>;
};
template <typename T>
using KeptValue = typename Kept<T>::Value;

/// The inputs of a case come in the memory order that it asks for.
template <typename T>
T read_parameter(const Case& test, const Arguments& given, Parameters& names) {
  if constexpr (MadeFromCase<T>) {
    return made_from(test, Type<T>());
  } else if constexpr (std::is_base_of_v<Tensor, T>) {
    const Parameter& parameter = names.next();
    if (parameter.otherwise && !test.has_input(parameter.name)) return {};
    const bool is_x = std::string_view(parameter.name) == "x";
    const Tensor tensor = is_x ? test.x() : test.tensor(parameter.name);
    if constexpr (std::is_same_v<T, Tensor>) {
      return tensor;
    } else {
      return tensor.as_quantized("conform", parameter.name);
    }
  } else if constexpr (std::is_same_v<T, std::vector<Tensor>> ||
                       std::is_same_v<T, std::vector<QTensor>>) {
    const char* name = names.next().name;
    T tensors;
    for (const Tensor& tensor : test.tensors(name)) {
      const Tensor ordered = test.in_memory_format(tensor);
      if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
        tensors.push_back(ordered);
      } else {
        tensors.push_back(ordered.as_quantized("conform", name));
      }
    }
    return tensors;
  } else {
    return read_setting<T>(given, names);
  }
}

inline Outputs outputs_of(Value result) { return single(std::move(result)); }
/// values and indices.
Outputs outputs_of(const ValuesIndices& result);
/// out0, out1, ...
Outputs outputs_of(const std::vector<Tensor>& results);

template <typename... P, typename Function>
Runner calls_as(Function function, std::initializer_list<Parameter> parameters) {
  return [function, list = std::vector<Parameter>(parameters)](const Case& test) {
    const Arguments given(test.attrs);
    Parameters names(list);
    // The braces give the order from left to right.
    const std::tuple<KeptValue<P>...> values{read_parameter<KeptValue<P>>(test, given, names)...};
    names.require_all_used();
    return outputs_of(std::apply(function, values));
  };
}

/// The runner of a function whose parameters are inputs and attributes of these names. Options and
/// what is made from the case have none.
template <typename R, typename... P>
Runner calls(R (*function)(P...), std::initializer_list<Parameter> parameters) {
  return calls_as<P...>(function, parameters);
}

/// The runner of a method; the first name is that of its object.
template <typename R, typename T, typename... P>
Runner calls(R (T::*method)(P...) const, std::initializer_list<Parameter> parameters) {
  return calls_as<T, P...>(std::mem_fn(method), parameters);
}

/// One function of many with the same name: overload<Tensor(const Tensor&, double)>(eq).
template <typename F>
constexpr F* overload(F* function) {
  return function;
}

/// Runs `with` for cases that have the attribute, else `without`.
Runner if_given(const char* attribute, Runner with, Runner without);

}  // namespace quanta::conform
