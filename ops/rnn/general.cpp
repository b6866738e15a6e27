#include "quanta/ops/rnn_general.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/rnn/cpu_kernels.h"
#include "quanta/ops/rnn/families.h"
#include "quanta/ops/rnn/loop.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {

std::span<const std::string_view> enumerators(GeneralCell) {
  static constexpr std::array<std::string_view, 3> kNames{"rnn", "gru", "lstm"};
  return kNames;
}

namespace recurrent {
namespace {

constexpr std::string_view kOp = "general_recurrent";

std::int64_t gates_of(GeneralCell cell) {
  switch (cell) {
    case GeneralCell::Rnn:
      return 1;
    case GeneralCell::Gru:
      return 3;
    case GeneralCell::Lstm:
      return 4;
  }
  return 0;
}

std::size_t functions_of(GeneralCell cell) {
  switch (cell) {
    case GeneralCell::Rnn:
      return 1;
    case GeneralCell::Gru:
      return 2;
    case GeneralCell::Lstm:
      return 3;
  }
  return 0;
}

/// One of the functions, applied to rows.
template <typename T>
struct RowFunction {
  GateFunction function;
  T alpha, beta;
  T clip;  // infinity: none

  void operator()(T* row, std::int64_t count) const {
    if (clip < std::numeric_limits<T>::infinity()) {
      for (std::int64_t i = 0; i < count; ++i) row[i] = std::clamp(row[i], -clip, clip);
    }
    if constexpr (std::is_same_v<T, float>) {
      if (function == GateFunction::Sigmoid) return cpu::sigmoid_row(row, count, row);
      if (function == GateFunction::Tanh) return cpu::tanh_row(row, count, row);
    }
    for (std::int64_t i = 0; i < count; ++i) row[i] = value(row[i]);
  }

 private:
  T value(T x) const {
    switch (function) {
      case GateFunction::Sigmoid:
        return T{1} / (T{1} + std::exp(-x));
      case GateFunction::Tanh:
        return std::tanh(x);
      case GateFunction::Relu:
        return std::max(x, T{0});
      case GateFunction::Affine:
        return alpha * x + beta;
      case GateFunction::LeakyRelu:
        return x >= T{0} ? x : alpha * x;
      case GateFunction::ThresholdedRelu:
        return x > alpha ? x : T{0};
      case GateFunction::ScaledTanh:
        return alpha * std::tanh(beta * x);
      case GateFunction::HardSigmoid:
        return std::clamp(alpha * x + beta, T{0}, T{1});
      case GateFunction::Elu:
        return x >= T{0} ? x : alpha * std::expm1(x);
      case GateFunction::Softsign:
        return x / (T{1} + std::abs(x));
      case GateFunction::Softplus:
        // log(1 + e^x) without an overflow.
        return std::max(x, T{0}) + std::log1p(std::exp(-std::abs(x)));
    }
    return x;
  }
};

/// The steps of one direction.
template <typename T>
class GeneralLoop {
 public:
  GeneralLoop(const GeneralRecurrentOptions& options, const GeneralRecurrentInputs& in,
              const RecurrentResult& result)
      : options_(options),
        in_(in),
        result_(result),
        steps_(in.gates.size(0)),
        batch_(in.gates.size(1)),
        hidden_(in.h_0.size(1)),
        gates_(gates_of(options.cell) * hidden_) {
    constexpr T kNone = std::numeric_limits<T>::infinity();
    for (std::size_t i = 0; i < options.functions.size(); ++i) {
      functions_.push_back({options.functions[i], static_cast<T>(options.alpha[i]),
                            static_cast<T>(options.beta[i]),
                            options.clip > 0.0 && i < 2 ? static_cast<T>(options.clip) : kNone});
    }
    // A reset before the product: that of the last gate comes after the others.
    splits_ = options.cell == GeneralCell::Gru && !options.linear_before_reset;
    const std::int64_t at_once = splits_ ? 2 * hidden_ : gates_;
    product_ = rows_function(0, at_once);
    if (splits_) last_product_ = rows_function(at_once, gates_);
    read_lengths();
  }

  void run() {
    std::copy_n(in_.h_0.data<T>(), in_.h_0.numel(), result_.h_n.mutable_data<T>());
    if (in_.c_0.defined()) {
      std::copy_n(in_.c_0.data<T>(), in_.c_0.numel(), result_.c_n.mutable_data<T>());
    }
    const auto size = static_cast<std::size_t>(batch_ * gates_);
    sums_.resize(size);
    products_.resize(size);
    reset_.resize(static_cast<std::size_t>(splits_ ? batch_ * hidden_ : 0));
    for (std::int64_t i = 0; i < steps_; ++i) {
      step(options_.order == StepOrder::Forward ? i : steps_ - 1 - i);
    }
  }

 private:
  detail::HiddenFunction<T> rows_function(std::int64_t begin, std::int64_t end) const {
    const Tensor bias = in_.bias.defined() ? in_.bias.slice(0, begin, end) : Tensor();
    return detail::hidden_function<T>(in_.weight.slice(0, begin, end), bias);
  }

  void read_lengths() {
    if (!in_.lengths.defined()) return;
    lengths_ = in_.lengths.to_int64_vector();
    for (const std::int64_t length : lengths_) {
      QUANTA_CHECK(length >= 0 && length <= steps_, "{}: lengths: expected 0..{}, got {}", kOp,
                   steps_, length);
    }
  }

  template <typename Body>
  void for_each_sequence(const Body& body) const {
    parallel_for(batch_, detail::sequences_per_thread(hidden_),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) body(i);
                 });
  }

  void step(std::int64_t t) {
    T* h = result_.h_n.mutable_data<T>();
    product_(h, batch_, products_.data());
    const T* gates = in_.gates.data<T>() + t * batch_ * gates_;
    if (splits_) {
      for_each_sequence([&](std::int64_t i) { reset_gates(gates + i * gates_, i); });
      last_product_(reset_.data(), batch_, products_.data());
    }
    T* output = result_.output.mutable_data<T>() + t * batch_ * hidden_;
    for_each_sequence([&](std::int64_t i) {
      T* to = output + i * hidden_;
      if (!lengths_.empty() && t >= lengths_[static_cast<std::size_t>(i)]) {
        std::fill_n(to, hidden_, T{0});
        return;
      }
      T* state = h + i * hidden_;
      switch (options_.cell) {
        case GeneralCell::Rnn:
          rnn(gates + i * gates_, i, state);
          break;
        case GeneralCell::Gru:
          gru(gates + i * gates_, i, state);
          break;
        case GeneralCell::Lstm:
          lstm(gates + i * gates_, i, state);
          break;
      }
      std::copy_n(state, hidden_, to);
    });
  }

  T* sums(std::int64_t i) { return sums_.data() + i * gates_; }
  const T* products(std::int64_t i, std::int64_t width) const {
    return products_.data() + i * width;
  }

  void rnn(const T* x, std::int64_t i, T* h) {
    const T* product = products(i, gates_);
    for (std::int64_t k = 0; k < hidden_; ++k) h[k] = x[k] + product[k];
    functions_[0](h, hidden_);
  }

  // z and r, and r * h for the product with it.
  void reset_gates(const T* x, std::int64_t i) {
    T* z = sums(i);
    const T* product = products(i, 2 * hidden_);
    for (std::int64_t k = 0; k < 2 * hidden_; ++k) z[k] = x[k] + product[k];
    functions_[0](z, 2 * hidden_);
    const T* h = result_.h_n.data<T>() + i * hidden_;
    T* reset = reset_.data() + i * hidden_;
    for (std::int64_t k = 0; k < hidden_; ++k) reset[k] = z[hidden_ + k] * h[k];
  }

  void gru(const T* x, std::int64_t i, T* h) {
    T* z = sums(i);
    T* n = z + 2 * hidden_;
    const T* x_n = x + 2 * hidden_;
    if (splits_) {
      const T* product = products(i, hidden_);
      for (std::int64_t k = 0; k < hidden_; ++k) n[k] = x_n[k] + product[k];
    } else {
      const T* product = products(i, gates_);
      for (std::int64_t k = 0; k < 2 * hidden_; ++k) z[k] = x[k] + product[k];
      functions_[0](z, 2 * hidden_);
      for (std::int64_t k = 0; k < hidden_; ++k) {
        n[k] = x_n[k] + z[hidden_ + k] * product[2 * hidden_ + k];
      }
    }
    functions_[1](n, hidden_);
    for (std::int64_t k = 0; k < hidden_; ++k) h[k] = (T{1} - z[k]) * n[k] + z[k] * h[k];
  }

  void lstm(const T* x, std::int64_t row, T* h) {
    T* i = sums(row);
    T* o = i + hidden_;
    T* f = o + hidden_;
    T* g = f + hidden_;
    T* c = result_.c_n.mutable_data<T>() + row * hidden_;
    const T* product = products(row, gates_);
    for (std::int64_t k = 0; k < gates_; ++k) i[k] = x[k] + product[k];
    const T* peephole = in_.peephole.defined() ? in_.peephole.data<T>() : nullptr;
    const auto look = [&](std::int64_t which, T* gate) {
      if (peephole == nullptr) return;
      const T* p = peephole + which * hidden_;
      for (std::int64_t k = 0; k < hidden_; ++k) gate[k] += p[k] * c[k];
    };
    look(0, i);
    look(2, f);
    functions_[0](i, hidden_);
    if (options_.input_forget) {
      for (std::int64_t k = 0; k < hidden_; ++k) f[k] = T{1} - i[k];
    } else {
      functions_[0](f, hidden_);
    }
    functions_[1](g, hidden_);
    for (std::int64_t k = 0; k < hidden_; ++k) c[k] = f[k] * c[k] + i[k] * g[k];
    look(1, o);
    functions_[0](o, hidden_);
    std::copy_n(c, hidden_, h);
    functions_[2](h, hidden_);
    for (std::int64_t k = 0; k < hidden_; ++k) h[k] *= o[k];
  }

  const GeneralRecurrentOptions& options_;
  const GeneralRecurrentInputs& in_;
  const RecurrentResult& result_;
  std::int64_t steps_, batch_, hidden_, gates_;
  bool splits_ = false;
  std::vector<RowFunction<T>> functions_;
  detail::HiddenFunction<T> product_, last_product_;
  std::vector<std::int64_t> lengths_;
  std::vector<T> sums_, products_, reset_;
};

struct GeneralRecurrent final : Op<GeneralRecurrent> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{7};
  enum Argument : std::size_t { kGates, kWeight, kBias, kH0, kC0, kPeephole, kLengths };
  GeneralRecurrentOptions options;

  void infer(const Arguments& in, Results& out) const override {
    check_options();
    detail::check_floats(kName, "gates", in[kGates]);
    const DType dtype = in[kGates].dtype();
    QUANTA_CHECK(in[kGates].dim() == 3, "{}: gates: expected [steps, batch, gates], got {}", kName,
                 in[kGates].sizes());
    const std::int64_t batch = in[kGates].size(1);
    const std::int64_t gates = in[kGates].size(2);
    QUANTA_CHECK(gates >= 1 && gates % gates_of(options.cell) == 0,
                 "{}: gates: expected a multiple of {} as the last size, got {}", kName,
                 gates_of(options.cell), in[kGates].sizes());
    const std::int64_t hidden = gates / gates_of(options.cell);
    check(in[kWeight], "weight", dtype, {gates, hidden});
    if (in[kBias].defined()) check(in[kBias], "bias", dtype, {gates});
    check(in[kH0], "h_0", dtype, {batch, hidden});
    const bool is_lstm = options.cell == GeneralCell::Lstm;
    if (is_lstm) check(in[kC0], "c_0", dtype, {batch, hidden});
    QUANTA_CHECK(is_lstm || !in[kC0].defined(), "{}: c_0: expected none but for lstm, got one",
                 kName);
    if (in[kPeephole].defined()) {
      QUANTA_CHECK(is_lstm, "{}: peephole: expected none but for lstm, got one", kName);
      check(in[kPeephole], "peephole", dtype, {3 * hidden});
    }
    if (in[kLengths].defined()) {
      const DType type = in[kLengths].dtype();
      QUANTA_CHECK(
          (type == DType::Int32 || type == DType::Int64) && in[kLengths].sizes() == Dims{batch},
          "{}: lengths: expected Int32 or Int64 [{}], got {} {}", kName, batch, type,
          in[kLengths].sizes());
    }
    for (std::size_t i = 0; i < in.size(); ++i) out.arrange(i, MemoryFormat::Contiguous);
    out.add({in[kGates].size(0), batch, hidden}, dtype);
    out.add({batch, hidden}, dtype);
    if (is_lstm) out.add({batch, hidden}, dtype);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const GeneralRecurrentInputs inputs{in[kGates], in[kWeight],   in[kBias],   in[kH0],
                                        in[kC0],    in[kPeephole], in[kLengths]};
    const RecurrentResult result{out[0], out[1], out.size() > 2 ? out[2] : Tensor()};
    if (out[1].numel() == 0) return "nothing";
    detail::visit_floats(in[kGates].dtype(), [&](auto zero) {
      GeneralLoop<decltype(zero)>(options, inputs, result).run();
    });
    return "steps";
  }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return {.multiply_adds = in[kGates].numel() * out[1].size(1),
            .bytes = static_cast<std::int64_t>(in[kGates].nbytes() + out[0].nbytes())};
  }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = GeneralRecurrent;
    using Options = GeneralRecurrentOptions;
    // Enumerators by number: a list of names is no kind of attribute.
    static constexpr AttributeInfo kFunctions{
        "functions",
        [](const Operation& operation) -> Attribute {
          std::vector<std::int64_t> numbers;
          for (const GateFunction function :
               static_cast<const Self&>(operation).options.functions) {
            numbers.push_back(static_cast<std::int64_t>(function));
          }
          return numbers;
        },
        [](Operation& operation, const Attribute& value) {
          std::vector<std::int64_t> numbers;
          detail::from_attribute("functions", value, numbers);
          std::vector<GateFunction> functions;
          for (const std::int64_t number : numbers) {
            QUANTA_CHECK(number >= 0 && number <= static_cast<std::int64_t>(GateFunction::Softplus),
                         "functions: expected the number of a gate function, got {}", number);
            functions.push_back(static_cast<GateFunction>(number));
          }
          static_cast<Self&>(operation).options.functions = std::move(functions);
        }};
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &Options::cell>("cell"),
        attribute<Self, &Self::options, &Options::order>("order"),
        kFunctions,
        attribute<Self, &Self::options, &Options::alpha>("alpha"),
        attribute<Self, &Self::options, &Options::beta>("beta"),
        attribute<Self, &Self::options, &Options::clip>("clip"),
        attribute<Self, &Self::options, &Options::linear_before_reset>("linear_before_reset"),
        attribute<Self, &Self::options, &Options::input_forget>("input_forget")};
    return kTable;
  }

 private:
  void check_options() const {
    const std::size_t count = functions_of(options.cell);
    QUANTA_CHECK(options.functions.size() == count && options.alpha.size() == count &&
                     options.beta.size() == count,
                 "{}: functions: expected {} with an alpha and a beta each, got {}, {} and {}",
                 kName, count, options.functions.size(), options.alpha.size(), options.beta.size());
    QUANTA_CHECK(options.clip >= 0.0, "{}: clip: expected a number >= 0, got {}", kName,
                 options.clip);
  }
  static void check(const Tensor& x, std::string_view name, DType dtype, const Dims& sizes) {
    QUANTA_CHECK(x.defined() && x.dtype() == dtype && x.sizes() == sizes,
                 "{}: {}: expected {} {}, got {}", kName, name, dtype, sizes,
                 x.defined() ? fmt::format("{} {}", x.dtype(), x.sizes()) : "an undefined one");
  }
};

}  // namespace

void add_general(Catalogue& catalogue) {
  catalogue.add({.name = kOp, .header = "quanta/ops/rnn_general.h", .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  GeneralRecurrent operation;
                  operation.options.clip = 2.0;
                  return sample_call(
                      std::move(operation),
                      {sample_tensor({3, 2, 12}, dtype), sample_tensor({12, 3}, dtype, 2),
                       sample_tensor({12}, dtype, 3), sample_tensor({2, 3}, dtype, 4),
                       sample_tensor({2, 3}, dtype, 5), sample_tensor({9}, dtype, 6), Tensor()});
                });
}

}  // namespace recurrent

RecurrentResult general_recurrent(const GeneralRecurrentOptions& options,
                                  const GeneralRecurrentInputs& inputs) {
  recurrent::GeneralRecurrent operation;
  operation.options = options;
  const Results results = run_all(operation, inputs.gates, inputs.weight, inputs.bias, inputs.h_0,
                                  inputs.c_0, inputs.peephole, inputs.lengths);
  return {results[0], results[1], options.cell == GeneralCell::Lstm ? results[2] : Tensor()};
}

}  // namespace quanta
