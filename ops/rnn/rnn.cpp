#include "quanta/ops/rnn.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/onednn/linear_float.h"
#include "quanta/ops/cuda/device_data.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/rnn/cpu_kernels.h"
#include "quanta/ops/rnn/cuda_steps.h"
#include "quanta/ops/rnn/families.h"
#include "quanta/ops/rnn/gradient.h"
#include "quanta/ops/rnn/loop.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/require_tensor.h"
#include "quanta/runtime/detail/sizes.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {

std::span<const std::string_view> enumerators(RecurrentKind) {
  static constexpr std::array<std::string_view, 4> kNames{"rnn_tanh", "rnn_relu", "lstm", "gru"};
  return kNames;
}
std::span<const std::string_view> enumerators(StepOrder) {
  static constexpr std::array<std::string_view, 2> kNames{"forward", "reverse"};
  return kNames;
}

namespace recurrent {
namespace {

constexpr std::string_view kOp = "recurrent_steps";

class FloatProduct final : public HiddenProduct, public detail::CudaFloatProduct {
 public:
  FloatProduct(const Tensor& weight, const Tensor& bias)
      : weight_(weight), bias_(bias), kernel_(weight, bias, cpu::FloatEpilogue::None) {}
  std::int64_t in_features() const noexcept override { return weight_.size(1); }
  std::int64_t out_features() const noexcept override { return weight_.size(0); }
  void operator()(const float* h, std::int64_t rows, float* out) const override {
    kernel_.run(rows, h, out);
  }
  const detail::CudaProduct* on_cuda() const noexcept override { return this; }
  void multiply(Device device, const float* h, std::int64_t rows, float* out) const override {
    const auto [weight, bias] = there(device);
    detail::CudaLibraryProduct(weight, bias, weight_.size(0), weight_.size(1))
        .multiply(device, h, rows, out);
  }

 private:
  // Copied there when states first come from the device.
  std::pair<const float*, const float*> there(Device device) const {
    const std::lock_guard lock(mutex_);
    auto known = copies_.find(device.index);
    if (known == copies_.end()) {
      const auto copy = [&](const Tensor& x) {
        return x.defined() ? cuda::Buffer(device, x.data_ptr(), x.nbytes()) : cuda::Buffer();
      };
      known = copies_.emplace(device.index, std::pair(copy(weight_), copy(bias_))).first;
    }
    return {known->second.first.as<float>(), known->second.second.as<float>()};
  }

  Tensor weight_, bias_;
  cpu::LinearFloat kernel_;
  mutable std::mutex mutex_;
  mutable std::map<std::int8_t, std::pair<cuda::Buffer, cuda::Buffer>> copies_;
};

// All steps on a CUDA device, whose products are of one class.
template <typename Product>
std::string_view run_on_cuda(const detail::CudaLayer& layer, Device device,
                             const detail::CudaProducts<Product>& products) {
  if (layer.steps.empty()) return "nothing";
  detail::run_cuda_layer(device, layer, products);
  return std::is_same_v<Product, detail::CudaCodeProduct> ? "gate_step" : "finish_gates";
}

void check_tensor(std::string_view argument, const Tensor& x, DType dtype, const Dims& sizes) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", kOp, argument);
  QUANTA_CHECK(x.dtype() == dtype && x.sizes() == sizes, "{}: {}: expected {} {}, got {} {}", kOp,
               argument, dtype, sizes, x.dtype(), x.sizes());
}

void check_product(std::string_view argument, const HiddenProduct& product, std::int64_t from,
                   std::int64_t to) {
  QUANTA_CHECK(product.in_features() == from && product.out_features() == to,
               "{}: {}: expected a product from {} to {} features, got one from {} to {}", kOp,
               argument, from, to, product.in_features(), product.out_features());
}

// The sum of the batch sizes.
std::int64_t check_batch_sizes(std::span<const std::int64_t> batch_sizes) {
  QUANTA_CHECK(!batch_sizes.empty(), "{}: batch_sizes: expected at least one step, got none", kOp);
  std::int64_t sum = 0;
  std::int64_t last = batch_sizes[0];
  for (const std::int64_t size : batch_sizes) {
    QUANTA_CHECK(size >= 0 && size <= last,
                 "{}: batch_sizes: expected numbers >= 0 that do not grow, got {} after {}", kOp,
                 size, last);
    last = size;
    // Beyond any tensor: no input_gates fit then.
    sum += std::min(size, std::numeric_limits<std::int64_t>::max() - sum);
  }
  return sum;
}

template <typename T>
T* numbers(const Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

/// The products of a call, W_hh h + b_hh and that of a projection if there is one.
template <typename T>
struct Products {
  detail::HiddenFunction<T> hidden, projection;
  /// What may run the steps by itself, or null.
  const HiddenProduct* layer = nullptr;
};

/// The buffers of one call and what happens in a step.
template <typename T>
class StepLoop {
 public:
  StepLoop(const RecurrentSteps& steps, const Products<T>& products, const Tensor& input_gates,
           const RecurrentResult& result, const Tensor& kept)
      : steps_(steps),
        products_(products),
        hidden_(steps.hidden_size),
        gates_(gate_count(steps.kind) * steps.hidden_size),
        width_(result.h_n.sizes()[1]),
        result_(result),
        input_gates_(input_gates),
        kept_(kept) {}

  /// Sequences that join later, as in Reverse order, have h_0 and c_0 in their rows until then;
  /// those that have ended keep their state. Gives the name of what ran.
  std::string_view run() {
    const std::vector<detail::RecurrentStep> order =
        detail::steps_in_order(steps_.batch_sizes, steps_.order);
    if constexpr (std::is_same_v<T, float>) {
      if (products_.layer != nullptr && run_layer(order)) return "quanta:layer";
    }
    make_buffers();
    for (const detail::RecurrentStep& step : order) run_step(step);
    return "quanta:steps";
  }

 private:
  bool run_layer(std::span<const detail::RecurrentStep> order) const {
    return products_.layer->run_layer({.kind = steps_.kind,
                                       .hidden_size = hidden_,
                                       .steps = order,
                                       .sequences = steps_.batch_sizes[0],
                                       .input_gates = numbers<float>(input_gates_),
                                       .output = numbers<float>(result_.output),
                                       .h = numbers<float>(result_.h_n),
                                       .cell = numbers<float>(result_.c_n)});
  }

  void make_buffers() {
    const std::int64_t sequences = steps_.batch_sizes[0];
    hidden_gates_ = Tensor::empty({sequences, gates_}, input_gates_.dtype());
    if (products_.projection) {
      unprojected_ = Tensor::empty({sequences, hidden_}, input_gates_.dtype());
    }
  }

  void run_step(const detail::RecurrentStep& step) const {
    T* h = numbers<T>(result_.h_n);
    products_.hidden(h, step.rows, numbers<T>(hidden_gates_));
    T* new_h = products_.projection ? numbers<T>(unprojected_) : h;
    parallel_for(step.rows, detail::sequences_per_thread(hidden_),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) gates(step.first + i, i, new_h);
                 });
    if (products_.projection) products_.projection(new_h, step.rows, h);
    std::copy_n(h, step.rows * width_, numbers<T>(result_.output) + step.first * width_);
  }

  // Sequence i, whose step is `row` of all.
  void gates(std::int64_t row, std::int64_t i, T* new_h) const {
    T* state = new_h + i * hidden_;
    cpu::GateRow<T> gates{numbers<T>(input_gates_) + row * gates_,
                          numbers<T>(hidden_gates_) + i * gates_, state, hidden_};
    if (kept_.defined()) gates.kept = numbers<T>(kept_) + row * kept_.sizes()[1];
    switch (steps_.kind) {
      case RecurrentKind::RnnTanh:
        return cpu::rnn_tanh_gates(gates);
      case RecurrentKind::RnnRelu:
        return cpu::rnn_relu_gates(gates);
      case RecurrentKind::Gru:
        return cpu::gru_gates(gates);
      case RecurrentKind::Lstm:
        gates.state = numbers<T>(result_.c_n) + i * hidden_;
        return cpu::lstm_gates(gates, state);
    }
  }

  const RecurrentSteps& steps_;
  const Products<T>& products_;
  std::int64_t hidden_, gates_, width_;
  const RecurrentResult& result_;
  const Tensor &input_gates_, &kept_;
  Tensor hidden_gates_, unprojected_;
};

enum class Projects : bool { No, Yes };

void check_call(const RecurrentSteps& steps, Projects projects, const Tensor& input_gates,
                const Tensor& h_0, const Tensor& c_0, DType dtype) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40U;  // a few times that is a size still
  QUANTA_CHECK(steps.hidden_size >= 1 && steps.hidden_size <= kMost,
               "{}: hidden_size: expected 1..{}, got {}", kOp, kMost, steps.hidden_size);
  const bool is_lstm = steps.kind == RecurrentKind::Lstm;
  QUANTA_CHECK(is_lstm || projects == Projects::No,
               "{}: projection: expected none but for Lstm, got one", kOp);
  const std::int64_t total = check_batch_sizes(steps.batch_sizes);
  const std::int64_t batch = steps.batch_sizes[0];
  check_tensor("input_gates", input_gates, dtype,
               {total, gate_count(steps.kind) * steps.hidden_size});
  detail::require_tensor(kOp, h_0, "h_0");
  QUANTA_CHECK(h_0.dim() == 2, "{}: h_0: expected [{}, output size], got {}", kOp, batch,
               h_0.sizes());
  const std::int64_t width = projects == Projects::No ? steps.hidden_size : h_0.sizes()[1];
  check_tensor("h_0", h_0, dtype, {batch, width});
  if (is_lstm) check_tensor("c_0", c_0, dtype, {batch, steps.hidden_size});
}

// What a loop reads: dense; c is undefined but for Lstm.
struct LoopInput {
  Tensor gates, h, c;
};

template <typename T>
std::string_view run_loop(const RecurrentSteps& steps, const Products<T>& products,
                          const LoopInput& input, const RecurrentResult& result,
                          const Tensor& kept) {
  std::copy_n(numbers<T>(input.h), input.h.numel(), numbers<T>(result.h_n));
  if (input.c.defined()) std::copy_n(numbers<T>(input.c), input.c.numel(), numbers<T>(result.c_n));
  if (result.output.numel() == 0) return "quanta:steps";
  return StepLoop<T>(steps, products, input.gates, result, kept).run();
}

/// The settings of both operations. A call's own batch sizes are looked at where they are; a clone
/// owns a copy.
template <typename Derived>
struct Steps : Op<Derived> {
  static constexpr std::string_view kName = kOp;
  enum Argument : std::size_t { kGates, kH0, kC0, kWeightHh, kBiasHh, kWeightHr };

  RecurrentKind kind;
  std::int64_t hidden_size;
  StepOrder order;

  explicit Steps(const RecurrentSteps& steps)
      : kind(steps.kind),
        hidden_size(steps.hidden_size),
        order(steps.order),
        batch_sizes_(steps.batch_sizes) {}

  void infer(const Arguments& in, Results& out) const override {
    const Derived& self = static_cast<const Derived&>(*this);
    const DType dtype = self.dtype_of(in);
    const Projects projects = self.projects(in);
    const Tensor c_0 = is_lstm() ? in[kC0] : Tensor();
    check_call(steps(), projects, in[kGates], in[kH0], c_0, dtype);
    self.check(in, dtype);
    for (std::size_t i = 0; i < in.size(); ++i) out.arrange(i, MemoryFormat::Contiguous);
    out.add({in[kGates].sizes()[0], in[kH0].sizes()[1]}, dtype);
    out.add(in[kH0].sizes(), dtype);
    if (is_lstm()) out.add(c_0.sizes(), dtype);
  }

  // Of the products in all steps. Weights are left out of the bytes: they are read once for each
  // step unless a cache holds them.
  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t width = out[0].sizes()[1];
    const bool projects = static_cast<const Derived&>(*this).projects(in) == Projects::Yes;
    const std::int64_t columns = (gate_count(kind) + (projects ? 1 : 0)) * hidden_size;
    return {.multiply_adds = in[kGates].sizes()[0] * width * columns,
            .bytes = static_cast<std::int64_t>(in[kGates].nbytes() + out[0].nbytes())};
  }

  std::shared_ptr<Operation> clone() const override {
    auto copy = std::make_shared<Derived>(static_cast<const Derived&>(*this));
    copy->own_batch_sizes();
    return copy;
  }

  bool is_lstm() const noexcept { return kind == RecurrentKind::Lstm; }
  std::span<const std::int64_t> batch_sizes() const noexcept { return batch_sizes_; }

 protected:
  RecurrentSteps steps() const {
    RecurrentSteps steps;
    steps.kind = kind;
    steps.hidden_size = hidden_size;
    steps.batch_sizes = batch_sizes_;
    steps.order = order;
    return steps;
  }
  LoopInput input(const Arguments& in) const {
    return {in[kGates], in[kH0], is_lstm() ? in[kC0] : Tensor()};
  }
  RecurrentResult result(std::span<const Tensor> out) const {
    return {out[0], out[1], is_lstm() ? out[2] : Tensor()};
  }

  template <typename Product>
  std::string_view run_steps_on_cuda(const Arguments& in, std::span<const Tensor> out,
                                     const detail::CudaProducts<Product>& products) const {
    const LoopInput given = input(in);
    const RecurrentResult result = this->result(out);
    if (is_lstm()) cuda::copy_same_dtype(result.c_n, given.c);
    const std::vector<detail::RecurrentStep> order =
        detail::steps_in_order(batch_sizes(), this->order);
    return run_on_cuda({.kind = kind,
                        .hidden_size = hidden_size,
                        .output_size = result.h_n.sizes()[1],
                        .steps = order,
                        .input_gates = cuda::floats_of(given.gates),
                        .h_0 = cuda::floats_of(given.h),
                        .cell = cuda::floats_of(result.c_n),
                        .output = cuda::floats_of(result.output),
                        .h_n = cuda::floats_of(result.h_n)},
                       given.gates.device(), products);
  }

  void own_batch_sizes() {
    owned_ =
        std::make_shared<const std::vector<std::int64_t>>(batch_sizes_.begin(), batch_sizes_.end());
    batch_sizes_ = *owned_;
  }

  static std::vector<AttributeInfo> settings() {
    AttributeInfo sizes{"batch_sizes",
                        [](const Operation& operation) -> Attribute {
                          const auto given = static_cast<const Derived&>(operation).batch_sizes();
                          return std::vector<std::int64_t>(given.begin(), given.end());
                        },
                        [](Operation& operation, const Attribute& value) {
                          std::vector<std::int64_t> given;
                          detail::from_attribute("batch_sizes", value, given);
                          Steps& self = static_cast<Derived&>(operation);
                          self.batch_sizes_ = given;
                          self.own_batch_sizes();
                        }};
    return {attribute<Derived, &Derived::kind>("kind"),
            attribute<Derived, &Derived::hidden_size>("hidden_size"),
            attribute<Derived, &Derived::order>("order"), sizes};
  }

 private:
  std::span<const std::int64_t> batch_sizes_;
  std::shared_ptr<const std::vector<std::int64_t>> owned_;
};

/// With packed weights. A call's own products are looked at where they are; a clone shares them.
struct PackedSteps final : Steps<PackedSteps> {
  static constexpr ArgumentCount kArguments{3};
  explicit PackedSteps(const RecurrentSteps& given)
      : Steps(given), hidden_(given.hidden), projection_(given.projection) {}

  DType dtype_of(const Arguments&) const { return DType::Float32; }
  Projects projects(const Arguments&) const {
    return projection_ != nullptr ? Projects::Yes : Projects::No;
  }
  void check(const Arguments& in, DType) const {
    QUANTA_CHECK(hidden_ != nullptr, "{}: hidden: expected a product, got none", kOp);
    const std::int64_t width = in[kH0].sizes()[1];
    check_product("hidden", *hidden_, width, gate_count(kind) * hidden_size);
    if (projection_ != nullptr) check_product("projection", *projection_, hidden_size, width);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const auto function = [](const HiddenProduct* packed) -> detail::HiddenFunction<float> {
      if (packed == nullptr) return {};
      return [packed](const float* h, std::int64_t rows, float* to) { (*packed)(h, rows, to); };
    };
    const Products<float> products{function(hidden_), function(projection_),
                                   projection_ == nullptr ? hidden_ : nullptr};
    return run_loop<float>(steps(), products, input(in), result(out), {});
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    using detail::CudaCodeProduct;
    using detail::CudaFloatProduct;
    if (const auto codes = products_on_cuda<CudaCodeProduct>(); codes.hidden != nullptr) {
      return run_steps_on_cuda(in, out, codes);
    }
    return run_steps_on_cuda(in, out, products_on_cuda<CudaFloatProduct>());
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    const bool has_kernel = products_on_cuda<detail::CudaCodeProduct>().hidden != nullptr ||
                            products_on_cuda<detail::CudaFloatProduct>().hidden != nullptr;
    return has_kernel ? std::span<const DType>(dtypes::kFloat) : std::span<const DType>();
  }

  GradientUse gradient_use(std::uint64_t) const override {
    autograd::throw_not_differentiable("recurrent_steps (packed)");
  }

  std::shared_ptr<Operation> clone() const override {
    auto copy = std::make_shared<PackedSteps>(*this);
    copy->own_batch_sizes();
    copy->owners_ = {shared(hidden_), shared(projection_)};
    return copy;
  }

  static OpaqueAttribute hidden(const PackedSteps& self) {
    return OpaqueAttribute(std::shared_ptr<const void>(), self.hidden_);
  }
  static OpaqueAttribute projection(const PackedSteps& self) {
    return OpaqueAttribute(std::shared_ptr<const void>(), self.projection_);
  }
  static std::span<const AttributeInfo> attribute_table() {
    static const std::vector<AttributeInfo> table = [] {
      std::vector<AttributeInfo> all = settings();
      all.push_back(read_only_attribute<PackedSteps, &PackedSteps::hidden>("hidden"));
      all.push_back(read_only_attribute<PackedSteps, &PackedSteps::projection>("projection"));
      return all;
    }();
    return table;
  }

 private:
  static std::shared_ptr<const HiddenProduct> shared(const HiddenProduct* product) {
    if (product == nullptr) return nullptr;
    std::shared_ptr<const HiddenProduct> owner = product->weak_from_this().lock();
    QUANTA_SUPPORTED(owner != nullptr,
                     "freeze: {}: hidden: expected a product in a shared_ptr, got another", kOp);
    return owner;
  }

  // Both of this class, or nothing.
  template <typename Product>
  detail::CudaProducts<Product> products_on_cuda() const noexcept {
    const auto find = [](const HiddenProduct* product) {
      return product == nullptr ? nullptr : dynamic_cast<const Product*>(product->on_cuda());
    };
    const detail::CudaProducts<Product> found{find(hidden_), find(projection_)};
    if (projection_ != nullptr && found.projection == nullptr) return {nullptr, nullptr};
    return found;
  }

  const HiddenProduct* hidden_;
  const HiddenProduct* projection_;
  std::array<std::shared_ptr<const HiddenProduct>, 2> owners_;
};

/// With plain weights, of which the bias and the projection may be undefined.
struct WeightSteps final : Steps<WeightSteps> {
  static constexpr ArgumentCount kArguments{6};
  /// What the gates leave for the gradient is one result more.
  bool keeps = false;

  explicit WeightSteps(const RecurrentSteps& given) : Steps(given) {}

  DType dtype_of(const Arguments& in) const {
    const bool is_double = in[kGates].defined() && in[kGates].dtype() == DType::Float64;
    return is_double ? DType::Float64 : DType::Float32;
  }
  Projects projects(const Arguments& in) const {
    return in[kWeightHr].defined() ? Projects::Yes : Projects::No;
  }
  void check(const Arguments& in, DType dtype) const {
    const std::int64_t rows = gate_count(kind) * hidden_size;
    const std::int64_t width = in[kH0].sizes()[1];
    check_tensor("weight_hh", in[kWeightHh], dtype, {rows, width});
    if (in[kBiasHh].defined()) check_tensor("bias_hh", in[kBiasHh], dtype, {rows});
    if (in[kWeightHr].defined()) {
      check_tensor("weight_hr", in[kWeightHr], dtype, {width, hidden_size});
    }
  }

  void infer(const Arguments& in, Results& out) const override {
    Steps::infer(in, out);
    if (kept_width() > 0) out.add({in[kGates].sizes()[0], kept_width()}, dtype_of(in));
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return detail::visit_floats(dtype_of(in), [&](auto zero) {
      using T = decltype(zero);
      Products<T> products{detail::hidden_function<T>(in[kWeightHh], in[kBiasHh]), {}};
      if (in[kWeightHr].defined()) {
        products.projection = detail::hidden_function<T>(in[kWeightHr], {});
      }
      return run_loop<T>(steps(), products, input(in), result(out),
                         kept_width() > 0 ? out[out.size() - 1] : Tensor());
    });
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const auto product = [](const Tensor& weight, const Tensor& bias) {
      return detail::CudaLibraryProduct(cuda::floats_of(weight), cuda::floats_of(bias),
                                        weight.size(0), weight.size(1));
    };
    const detail::CudaLibraryProduct hidden = product(in[kWeightHh], in[kBiasHh]);
    if (!in[kWeightHr].defined()) {
      return run_steps_on_cuda<detail::CudaFloatProduct>(in, out, {&hidden, nullptr});
    }
    const detail::CudaLibraryProduct projection = product(in[kWeightHr], Tensor());
    return run_steps_on_cuda<detail::CudaFloatProduct>(in, out, {&hidden, &projection});
  }
  // What the way back reads is kept on the CPU only.
  std::span<const DType> cuda_dtypes() const noexcept override {
    return keeps ? std::span<const DType>() : std::span<const DType>(dtypes::kFloat);
  }

  std::shared_ptr<const Operation> for_gradient(std::uint64_t) const override {
    if (keeps || detail::kept_numbers(kind) == 0) return nullptr;
    auto copy = std::make_shared<WeightSteps>(*this);
    copy->keeps = true;
    return copy;
  }
  GradientUse gradient_use(std::uint64_t) const override {
    const std::uint64_t kept = kept_width() > 0 ? std::uint64_t{1} << (is_lstm() ? 3 : 2) : 0;
    return GradientUse::of(1U << kH0 | 1U << kC0 | 1U << kWeightHh | 1U << kWeightHr, 1U | kept);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const RecurrentGradients gradients = recurrent_gradients(
        {.kind = kind,
         .hidden_size = hidden_size,
         .batch_sizes = batch_sizes(),
         .order = order,
         .output = context.output(0),
         .kept = kept_width() > 0 ? context.output(is_lstm() ? 3 : 2) : Tensor(),
         .h_0 = context.input(kH0),
         .c_0 = is_lstm() ? context.input(kC0) : Tensor(),
         .weight_hh = context.input(kWeightHh),
         .weight_hr = context.input(kWeightHr),
         .for_output = context.grad(0),
         .for_h = context.grad(1),
         .for_c = is_lstm() ? context.grad(2) : Tensor(),
         .needs_weight_hh = context.needs(kWeightHh),
         .needs_bias_hh = context.needs(kBiasHh),
         .needs_weight_hr = context.needs(kWeightHr)});
    return {gradients.gates,     gradients.h_0,     gradients.c_0,
            gradients.weight_hh, gradients.bias_hh, gradients.weight_hr};
  }

  static std::span<const AttributeInfo> attribute_table() {
    static const std::vector<AttributeInfo> table = settings();
    return table;
  }

 private:
  std::int64_t kept_width() const { return keeps ? detail::kept_numbers(kind) * hidden_size : 0; }
};

RecurrentResult result_of(const Results& results, RecurrentKind kind) {
  return {results[0], results[1], kind == RecurrentKind::Lstm ? results[2] : Tensor()};
}

}  // namespace
}  // namespace recurrent

bool HiddenProduct::run_layer(const detail::LayerSteps& /*layer*/) const { return false; }
const detail::CudaProduct* HiddenProduct::on_cuda() const noexcept { return nullptr; }

std::int64_t gate_count(RecurrentKind kind) {
  switch (kind) {
    case RecurrentKind::RnnTanh:
    case RecurrentKind::RnnRelu:
      return 1;
    case RecurrentKind::Lstm:
      return 4;
    case RecurrentKind::Gru:
      return 3;
  }
  return 0;
}

std::shared_ptr<const HiddenProduct> float_hidden_product(const Tensor& weight,
                                                          const Tensor& bias) {
  constexpr std::string_view kProduct = "float_hidden_product";
  QUANTA_CHECK(weight.defined() && weight.dtype() == DType::Float32 && weight.dim() == 2 &&
                   weight.numel() > 0,
               "{}: weight: expected Float32 [N, K], got {} {}", kProduct,
               weight.defined() ? to_string(weight.dtype()) : "undefined",
               weight.defined() ? weight.sizes() : Dims{});
  QUANTA_CHECK(!bias.defined() ||
                   (bias.dtype() == DType::Float32 && bias.sizes() == Dims{weight.sizes()[0]}),
               "{}: bias: expected Float32 [{}], got {} {}", kProduct, weight.sizes()[0],
               bias.dtype(), bias.sizes());
  return std::make_shared<recurrent::FloatProduct>(
      weight.clone(MemoryFormat::Contiguous),
      bias.defined() ? bias.clone(MemoryFormat::Contiguous) : bias);
}

RecurrentResult recurrent_steps(const RecurrentSteps& steps, const Tensor& input_gates,
                                const Tensor& h_0, const Tensor& c_0) {
  return recurrent::result_of(run_all(recurrent::PackedSteps(steps), input_gates, h_0, c_0),
                              steps.kind);
}

RecurrentResult recurrent_steps(const RecurrentSteps& steps, const StepWeights& weights,
                                const Tensor& input_gates, const Tensor& h_0, const Tensor& c_0) {
  return recurrent::result_of(run_all(recurrent::WeightSteps(steps), input_gates, h_0, c_0,
                                      weights.weight_hh, weights.bias_hh, weights.weight_hr),
                              steps.kind);
}

void detail::add_recurrent(Catalogue& catalogue) {
  catalogue.add({.name = recurrent::kOp, .header = "quanta/ops/rnn.h", .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  static constexpr std::array<std::int64_t, 3> kBatchSizes{2, 2, 1};
                  RecurrentSteps steps;
                  steps.hidden_size = 3;
                  steps.batch_sizes = kBatchSizes;
                  return sample_call(
                      recurrent::WeightSteps(steps),
                      {sample_tensor({5, 12}, dtype), sample_tensor({2, 3}, dtype, 2),
                       sample_tensor({2, 3}, dtype, 3), sample_tensor({12, 3}, dtype, 4), Tensor(),
                       Tensor()});
                });
  recurrent::add_general(catalogue);
}

}  // namespace quanta
