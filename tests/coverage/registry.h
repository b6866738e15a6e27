#pragma once

// What Quanta has of torch.ao.quantization, row by row. A row holds code, not only names: its call
// is compiled and linked, so it cannot name what does not exist, and it is run on small tensors of
// every element type and memory order to find out which ones it takes.

#include <cstdint>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "quanta/nn/container.h"
#include "quanta/runtime/tensor.h"

namespace quanta::coverage {

/// What a call is tried with: sizes [2, 4, 6, 6], [2, 4, 6], [2, 4, 6, 6, 6] and [6, 4].
template <typename T>
struct Sample {
  T x;
  T signal;
  T volume;
  T matrix;
};

/// Code that shows that a row exists. One of `any` and `quantized` is set when it can be tried;
/// `unused` is only there to be linked.
struct Use {
  std::string_view text;
  void (*any)(const Sample<Tensor>&) = nullptr;
  void (*quantized)(const Sample<QTensor>&) = nullptr;
  void (*unused)(nn::Sequential&) = nullptr;
};

/// Refers to a type, and to its from_float if it has one, so that both have to be there.
template <typename T>
void refer_to() {
  static_cast<void>(typeid(T).name());
  if constexpr (requires { &T::from_float; }) {
    [[maybe_unused]] volatile auto function = &T::from_float;
  }
}

// The text of a call is the code that is compiled. x, signal, volume and matrix are as in Sample.
#define QUANTA_COVERAGE_NAMES [[maybe_unused]] const auto& [x, signal, volume, matrix] = sample;
#define QUANTA_CALL(...)                                                                \
  ::quanta::coverage::Use {                                                             \
    .text = #__VA_ARGS__, .any = [](const ::quanta::coverage::Sample<Tensor>& sample) { \
      QUANTA_COVERAGE_NAMES static_cast<void>(__VA_ARGS__);                             \
    }                                                                                   \
  }
#define QUANTA_QUANTIZED_CALL(...)                                                             \
  ::quanta::coverage::Use {                                                                    \
    .text = #__VA_ARGS__, .quantized = [](const ::quanta::coverage::Sample<QTensor>& sample) { \
      QUANTA_COVERAGE_NAMES static_cast<void>(__VA_ARGS__);                                    \
    }                                                                                          \
  }
// A module type, tried with the call that follows, in which the type is called Type.
#define QUANTA_MODULE(type, ...)                                                        \
  ::quanta::coverage::Use {                                                             \
    .text = #type, .quantized = [](const ::quanta::coverage::Sample<QTensor>& sample) { \
      using Type = type;                                                                \
      ::quanta::coverage::refer_to<Type>();                                             \
      QUANTA_COVERAGE_NAMES static_cast<void>(__VA_ARGS__);                             \
    }                                                                                   \
  }
#define QUANTA_FLOAT_MODULE(type, ...)                                           \
  ::quanta::coverage::Use {                                                      \
    .text = #type, .any = [](const ::quanta::coverage::Sample<Tensor>& sample) { \
      using Type = type;                                                         \
      QUANTA_COVERAGE_NAMES static_cast<void>(__VA_ARGS__);                      \
    }                                                                            \
  }
// Named but not tried: a type, and code on a network.
#define QUANTA_TYPE(type)                                                                  \
  ::quanta::coverage::Use {                                                                \
    .text = #type, .unused = [](nn::Sequential&) { ::quanta::coverage::refer_to<type>(); } \
  }
#define QUANTA_CODE(...)                                                                   \
  ::quanta::coverage::Use {                                                                \
    .text = #__VA_ARGS__,                                                                  \
    .unused = []([[maybe_unused]] nn::Sequential& net) { static_cast<void>(__VA_ARGS__); } \
  }

struct Row {
  std::string_view name;     ///< torch's
  Use use;                   ///< empty text: not yet
  std::string_view header;   ///< path in the repository
  std::string_view suites;   ///< "suite" or "suite/op", separated by blanks
  std::string_view test;     ///< path in the repository
  std::string_view not_yet;  ///< why, and which work will bring it
  bool done() const noexcept { return not_yet.empty(); }
};

struct Section {
  std::string_view title;
  std::vector<Row> rows;

  /// Rows that follow are declared and tested here.
  Section& from(std::string_view header, std::string_view test) {
    header_ = header;
    test_ = test;
    return *this;
  }
  Section& row(std::string_view name, const Use& use, std::string_view suites = {}) {
    rows.push_back({name, use, header_, suites, test_, {}});
    return *this;
  }
  /// The last row is tested elsewhere.
  Section& tested_in(std::string_view test) {
    rows.back().test = test;
    return *this;
  }
  Section& not_yet(std::string_view why, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) rows.push_back({name, {}, {}, {}, {}, why});
    return *this;
  }

  std::string_view header_{};
  std::string_view test_{};
};

/// The whole list, in the order of torch's documentation.
std::vector<Section> sections();

// Its parts, one file each.
std::vector<Section> tensor_sections();
std::vector<Section> functional_sections();
std::vector<Section> nn_functional_sections();
std::vector<Section> module_sections();
std::vector<Section> quantizer_sections();
std::vector<Section> workflow_sections();

/// What a row's call took when it was tried.
struct Taken {
  std::vector<DType> types;        ///< plain, and quantized per tensor
  std::vector<DType> per_channel;  ///< quantized per channel along dimension 1
  bool contiguous = false;
  bool channels_last = false;
  bool strided = false;  ///< every second element of a larger tensor
  bool has_layouts = false;
};
Taken try_row(const Row& row);

// Other arguments of the calls, so that a row stays one line.
inline constexpr double scale = 0.1;
inline constexpr std::int64_t zero_point = 1;
Tensor ones(const Dims& sizes);
QTensor weight(const Dims& sizes);
Tensor indices();

}  // namespace quanta::coverage
