#include "quanta/ops/rnn_general.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>
#include <utility>

#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/rnn/cpu_kernels.h"
#include "quanta/ops/rnn/cuda_general.h"
#include "quanta/ops/rnn/cuda_steps.h"
#include "quanta/ops/rnn/families.h"
#include "quanta/ops/rnn/general_functions.h"
#include "quanta/ops/rnn/loop.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/memory.h"
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

static_assert(static_cast<int>(GateKind::Softplus) == static_cast<int>(GateFunction::Softplus));

/// Function number i of a layer.
template <typename T>
GateCall<T> gate_call(const GeneralRecurrentOptions& options, std::size_t i) {
  GateCall<T> call{static_cast<GateKind>(options.functions[i]), static_cast<T>(options.alpha[i]),
                   static_cast<T>(options.beta[i])};
  if (options.clip > 0.0 && i < 2) call.clip = static_cast<T>(options.clip);
  return call;
}

/// One of the functions, applied to rows.
template <typename T>
struct RowFunction {
  GateCall<T> call;

  void operator()(T* row, std::int64_t count) const {
    if constexpr (std::is_same_v<T, float>) {
      if (call.kind == GateKind::Sigmoid || call.kind == GateKind::Tanh) {
        for (std::int64_t i = 0; i < count; ++i) row[i] = call.clipped(row[i]);
        if (call.kind == GateKind::Tanh) return cpu::tanh_row(row, count, row);
        return cpu::sigmoid_row(row, count, row);
      }
    }
    for (std::int64_t i = 0; i < count; ++i) row[i] = call(row[i]);
  }
};

void check_lengths(const Tensor& lengths, std::int64_t steps) {
  for (const std::int64_t length : lengths.to_int64_vector()) {
    QUANTA_CHECK(length >= 0 && length <= steps, "{}: lengths: expected 0..{}, got {}", kOp, steps,
                 length);
  }
}

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
    for (std::size_t i = 0; i < options.functions.size(); ++i) {
      functions_.push_back({gate_call<T>(options, i)});
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
    check_lengths(in_.lengths, steps_);
    lengths_ = in_.lengths.to_int64_vector();
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

cuda::GeneralStep step_of(const GeneralRecurrentOptions& options) {
  switch (options.cell) {
    case GeneralCell::Rnn:
      return cuda::GeneralStep::Rnn;
    case GeneralCell::Gru:
      return options.linear_before_reset ? cuda::GeneralStep::GruResetBehind
                                         : cuda::GeneralStep::GruResetBefore;
    case GeneralCell::Lstm:
      return cuda::GeneralStep::Lstm;
  }
  return {};
}

float* device_floats(const Tensor& x) {
  return x.defined() ? reinterpret_cast<float*>(x.device_ptr()) : nullptr;
}

/// All steps of one direction on a CUDA device.
void run_on_cuda(const GeneralRecurrentOptions& options, const GeneralRecurrentInputs& in,
                 const RecurrentResult& result) {
  const Device device = result.h_n.device();
  const std::int64_t steps = in.gates.size(0);
  const std::int64_t batch = in.gates.size(1);
  const std::int64_t hidden = in.h_0.size(1);
  const std::int64_t gates = gates_of(options.cell) * hidden;
  if (in.lengths.defined()) check_lengths(in.lengths, steps);
  const auto start = [&](const Tensor& state, const Tensor& from) {
    cuda::driver(device).copy_on_device(state.device_ptr(), from.device_ptr(), state.nbytes());
  };
  start(result.h_n, in.h_0);
  if (in.c_0.defined()) start(result.c_n, in.c_0);

  cuda::GeneralStepParams step;
  step.step = step_of(options);
  step.input_forget = options.input_forget;
  step.rows = batch;
  step.units = hidden;
  for (std::size_t i = 0; i < options.functions.size(); ++i) {
    step.functions[i] = gate_call<float>(options, i);
  }
  step.peephole = device_floats(in.peephole);
  step.lengths = in.lengths.defined() ? in.lengths.device_ptr() : nullptr;
  step.is_long = in.lengths.defined() && in.lengths.dtype() == DType::Int64;
  step.state = device_floats(result.h_n);
  step.cell = device_floats(result.c_n);

  // A reset before the product: that of the last gate comes after the others.
  const bool splits = step.step == cuda::GeneralStep::GruResetBefore;
  const std::int64_t at_once = splits ? 2 * hidden : gates;
  const float* const weight = device_floats(in.weight);
  const float* const bias = device_floats(in.bias);
  const detail::CudaLibraryProduct product(weight, bias, at_once, hidden);
  const detail::CudaLibraryProduct last_product(weight + at_once * hidden,
                                                bias != nullptr ? bias + at_once : nullptr,
                                                gates - at_once, hidden);
  const auto floats = [&](std::int64_t width) {
    return cuda::Buffer(device, static_cast<std::size_t>(batch * width) * sizeof(float));
  };
  const cuda::Buffer products = floats(at_once);
  const cuda::Buffer update = splits ? floats(hidden) : cuda::Buffer();
  const cuda::Buffer reset = splits ? floats(hidden) : cuda::Buffer();
  step.hidden_gates = products.as<float>();
  step.update = update.as<float>();

  for (std::int64_t i = 0; i < steps; ++i) {
    step.time = options.order == StepOrder::Forward ? i : steps - 1 - i;
    step.input_gates = device_floats(in.gates) + step.time * batch * gates;
    step.output = device_floats(result.output) + step.time * batch * hidden;
    product.multiply(device, step.state, batch, products.as<float>());
    if (splits) {
      cuda::make_reset_gates(device, {.rows = batch,
                                      .units = hidden,
                                      .function = step.functions[0],
                                      .input_gates = step.input_gates,
                                      .hidden_gates = products.as<float>(),
                                      .state = step.state,
                                      .update = update.as<float>(),
                                      .reset = reset.as<float>()});
      last_product.multiply(device, reset.as<float>(), batch, products.as<float>());
    }
    cuda::finish_general_step(device, step);
  }
}

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
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    if (out[1].numel() == 0) return "nothing";
    run_on_cuda(options,
                {in[kGates], in[kWeight], in[kBias], in[kH0], in[kC0], in[kPeephole], in[kLengths]},
                {out[0], out[1], out.size() > 2 ? out[2] : Tensor()});
    return "finish_general_step";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }

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
