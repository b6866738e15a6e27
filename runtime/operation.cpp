#include "quanta/runtime/operation.h"

#include <algorithm>
#include <cstring>
#include <typeinfo>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {

// Results --------------------------------------------------------------------------------------

namespace {

Tensor without_memory(const Dims& sizes, const Dims& strides, DType dtype,
                      const Quantizer* quantizer) {
  IntrusivePtr<TensorImpl> impl(new TensorImpl);
  impl->sizes = sizes;
  impl->strides = strides;
  impl->numel = checked_numel(sizes);
  impl->dtype = dtype;
  if (quantizer != nullptr) impl->quantizer = *quantizer;
  return Tensor(std::move(impl));
}

void allocate(const Tensor& x, Device device) {
  TensorImpl& impl = *x.impl();
  impl.device = device;
  impl.storage = IntrusivePtr<Storage>(new Storage(storage_bytes(impl.dtype, impl.numel), device));
  impl.data = impl.storage->data();
}

std::string names_of(std::span<const DType> dtypes) {
  std::string names;
  for (const DType dtype : dtypes) {
    names += (names.empty() ? "" : ", ") + std::string(to_string(dtype));
  }
  return names;
}

std::int64_t byte_count(const Tensor& x) {
  return x.defined() ? static_cast<std::int64_t>(x.nbytes()) : 0;
}

}  // namespace

void Results::push(Tensor tensor) {
  if (count_ < few_.size()) {
    few_[count_++] = std::move(tensor);
    return;
  }
  if (many_.empty()) many_.assign(few_.begin(), few_.end());
  many_.push_back(std::move(tensor));
  ++count_;
}

void Results::add(const Dims& sizes, DType dtype, MemoryFormat format) {
  push(without_memory(sizes, contiguous_strides(sizes, format), dtype, nullptr));
}

void Results::add(const Dims& sizes, DType dtype, const Quantizer& quantizer, MemoryFormat format) {
  const MemoryFormat order = is_sub_byte(dtype) ? MemoryFormat::Contiguous : format;
  push(without_memory(sizes, contiguous_strides(sizes, order), dtype, &quantizer));
}

void Results::add_like(const Tensor& like, const Dims& sizes, const Dims& strides) {
  push(without_memory(sizes, strides, like.dtype(), &like.impl()->quantizer));
}

void Results::add_like(const Tensor& like, const Dims& sizes, MemoryFormat format) {
  add_like(like, sizes, contiguous_strides(sizes, format));
}

void Results::add_in_place(const Tensor& argument) {
  push(argument);
  in_place_ = true;
}

void Results::add_view(Tensor view) {
  push(std::move(view));
  views_ = true;
}

void Results::arrange(std::size_t i, MemoryFormat format) {
  QUANTA_DCHECK(i < kArranged);
  arranged_[i] = format;
  arranges_ = true;
}

void Results::reads_values(std::string_view op, const Tensor& argument) {
  replay::check_read(op, argument);
}

// Operation ------------------------------------------------------------------------------------

std::string_view Operation::cuda(const Arguments&, std::span<const Tensor>) const {
  throw InternalError(fmt::format("{}: cuda: expected a kernel for its cuda_dtypes()", name()));
}
std::span<const DType> Operation::cuda_dtypes() const noexcept { return {}; }

OpWork Operation::work(const Arguments& in, std::span<const Tensor> out) const {
  OpWork work;
  for (const Tensor* x : in) work.bytes += byte_count(*x);
  for (const Tensor& x : out) work.bytes += byte_count(x);
  return work;
}

GradientUse Operation::gradient_use(std::uint64_t) const { return {}; }

std::vector<Tensor> Operation::gradient(const autograd::BackwardContext&) const {
  autograd::throw_not_differentiable(name());
}

std::shared_ptr<const Operation> Operation::for_gradient(std::uint64_t) const { return nullptr; }

PlanUse Operation::plan_use(const Arguments&, std::span<const Tensor>) const { return {}; }

// NOLINTBEGIN(performance-unnecessary-value-param): operations that have such a form keep the table.
std::shared_ptr<const Operation> Operation::with_table(std::shared_ptr<const ByteTable>) const {
  return nullptr;
}
std::shared_ptr<const Operation> Operation::with_codes(std::shared_ptr<const ByteTable>) const {
  return nullptr;
}
// NOLINTEND(performance-unnecessary-value-param)
std::shared_ptr<const Operation> Operation::with_sum(const PlanUse::CodeSum&,
                                                     const Quantizer&) const {
  return nullptr;
}
std::shared_ptr<const Operation> Operation::with_next(const Operation&, std::size_t) const {
  return nullptr;
}
std::shared_ptr<const Operation> Operation::with_range() const { return nullptr; }
std::shared_ptr<const Operation> Operation::with_range_given() const { return nullptr; }
std::span<const std::byte> Operation::weight_memory() const noexcept { return {}; }

bool Operation::works_by_rows() const noexcept { return false; }

std::span<const AttributeInfo> Operation::attributes() const noexcept { return {}; }

void Composition::infer(const Arguments&, Results&) const {
  throw InternalError(fmt::format("{}: infer: expected an operation of its own", name()));
}
std::string_view Composition::cpu(const Arguments&, std::span<const Tensor>) const {
  throw InternalError(fmt::format("{}: cpu: expected an operation of its own", name()));
}

bool operator==(const Operation& a, const Operation& b) {
  if (&a == &b) return true;
  if (typeid(a) != typeid(b) || a.name() != b.name()) return false;
  return std::ranges::all_of(a.attributes(), [&](const AttributeInfo& info) {
    return same_attribute(info.get(a), info.get(b));
  });
}

std::string to_string(const Operation& operation) {
  std::string text(operation.name());
  std::string_view separator = "(";
  for (const AttributeInfo& info : operation.attributes()) {
    const Attribute value = info.get(operation);
    if (std::holds_alternative<std::monostate>(value)) continue;
    text += fmt::format("{}{}={}", separator, info.name, to_string(value));
    separator = ", ";
  }
  return separator == "(" ? text : text + ")";
}

namespace {

const AttributeInfo& find_attribute(const Operation& operation, std::string_view name) {
  for (const AttributeInfo& info : operation.attributes()) {
    if (info.name == name) return info;
  }
  std::string names;
  for (const AttributeInfo& info : operation.attributes()) {
    names += (names.empty() ? "" : ", ") + std::string(info.name);
  }
  throw ArgumentError(fmt::format("{}: attribute: expected one of {}, got {}", operation.name(),
                                  names.empty() ? "none" : names, name));
}

}  // namespace

Attribute attribute_of(const Operation& operation, std::string_view name) {
  return find_attribute(operation, name).get(operation);
}

void set_attribute(Operation& operation, std::string_view name, const Attribute& value) {
  const AttributeInfo& info = find_attribute(operation, name);
  QUANTA_CHECK(
      info.set != nullptr,
      "{}: {}: expected an attribute that can be written, got one that follows from others",
      operation.name(), name);
  info.set(operation, value);
}

void require_tensor(std::string_view op, std::string_view argument, const Tensor& x,
                    std::initializer_list<DType> dtypes) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
  QUANTA_SUPPORTED(std::find(dtypes.begin(), dtypes.end(), x.dtype()) != dtypes.end(),
                   "{}: {}: expected {} on the CPU, got {}", op, argument, names_of(dtypes),
                   x.dtype());
}

void copy_result(const Tensor& result, const Tensor& out) {
  QUANTA_SUPPORTED(
      result.dtype() == out.dtype() && result.sizes() == out.sizes() &&
          (!result.is_quantized() || result.impl()->quantizer == out.impl()->quantizer),
      "copy_result: result: expected {} {} as before, got {} {}{}", out.dtype(), out.sizes(),
      result.dtype(), result.sizes(),
      result.is_quantized() ? " (or other quantization parameters)" : "");
  if (result.numel() == 0) return;
  if (out.is_dense() && result.strides() == out.strides() && out.device().is_cpu()) {
    std::memcpy(out.data_ptr(), result.data_ptr(), result.nbytes());
  } else {
    out.copy_(result);
  }
}

// run ------------------------------------------------------------------------------------------

namespace {

class RunningScope {
 public:
  explicit RunningScope(const Operation& operation) noexcept : outer_(detail::running_operation) {
    detail::running_operation = &operation;
  }
  ~RunningScope() { detail::running_operation = outer_; }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  const Operation* outer_;
};

}  // namespace

struct Runner {
  // Copies of arguments in the order that the kernel wants.
  struct Arranged {
    std::array<Tensor, Results::kArranged> copies;
    std::vector<const Tensor*> arguments;
  };

  static bool is_arranged(const Arguments& in, const Results& out, std::size_t i) {
    const MemoryFormat format = out.arranged_[i];
    return format == MemoryFormat::Preserve || !in[i].defined() || in[i].is_contiguous(format);
  }

  // Whether all arguments lie in memory as the kernel wants them.
  static bool are_arranged(const Arguments& in, const Results& out) {
    if (!out.arranges_) return true;
    const std::size_t count = std::min(in.size(), Results::kArranged);
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_arranged(in, out, i)) return false;
    }
    return true;
  }

  static Arguments arrange(const Arguments& in, const Results& out, Arranged& arranged) {
    const std::size_t count = std::min(in.size(), Results::kArranged);
    arranged.arguments.assign(in.begin(), in.end());
    for (std::size_t i = 0; i < count; ++i) {
      if (is_arranged(in, out, i)) continue;
      arranged.copies[i] = in[i].contiguous(out.arranged_[i]);
      arranged.arguments[i] = &arranged.copies[i];
    }
    return {arranged.arguments.data(), arranged.arguments.size()};
  }

  static Device common_device(const Operation& operation, const Arguments& in) {
    Device device;
    bool is_first = true;
    for (const Tensor* x : in) {
      if (!x->defined()) continue;
      if (is_first) device = x->device();
      is_first = false;
      if (x->device() != device) [[unlikely]] {
        throw ArgumentError(with_module_path(
            fmt::format("{}: arguments: expected all on one device, got {} and {}",
                        operation.name(), to_string(device), to_string(x->device()))));
      }
    }
    return device;
  }

  // Before anything is allocated.
  static void require_cuda(const Operation& operation, const Arguments& in, const Results& out,
                           Device device) {
    const std::span<const DType> dtypes = operation.cuda_dtypes();
    const DType given = in.size() > 0 ? in[0].dtype() : out[0].dtype();
    if (std::ranges::find(dtypes, given) != dtypes.end()) return;
    throw UnsupportedError(with_module_path(
        dtypes.empty()
            ? fmt::format("{}: x: expected a tensor on cpu (there is no kernel for CUDA), got one "
                          "on {}: copy it with cpu()",
                          operation.name(), to_string(device))
            : fmt::format("{}: x: expected {} on {}, got {}: copy it with cpu()", operation.name(),
                          names_of(dtypes), to_string(device), given)));
  }

  // Gives memory to the results; whether there is anything to calculate.
  static bool allocate_all(Results& out, Device device) {
    if (out.views_) return false;
    bool any = out.empty();
    for (Tensor& x : out) {
      if (!x.impl()->storage) allocate(x, out.place_.value_or(device));  // else in place
      any = any || x.numel() > 0;
    }
    return any;
  }

  static void calculate(const Operation& operation, const Arguments& in, const Results& out,
                        Device device, OpScope& scope) {
    if (device.is_cpu()) [[likely]] {
      scope.kernel(operation.cpu(in, out.span()));
      return;
    }
    scope.device_begins(device);
    scope.kernel(operation.cuda(in, out.span()));
    scope.device_ends();
    if (cuda::synchronizes_each_op()) synchronize(device);
  }

  static std::uint64_t needed(const Arguments& in) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i].defined() && in[i].requires_grad()) bits |= std::uint64_t{1} << std::min(i, 63UL);
    }
    return bits;
  }

  static void require_changeable(const Operation& operation, const Results& out) {
    for (const Tensor& x : out) autograd::require_changeable(operation.name(), x);
  }

  static void before_writes(const Operation& operation, const Results& out, Device device) {
    for (const Tensor& x : out) {
      if (!x.impl()->storage) continue;  // a new one
      QUANTA_CHECK(x.device() == device, "{}: x: expected a tensor on {}, got one on {}",
                   operation.name(), to_string(device), to_string(x.device()));
      replay::before_write(operation.name(), x);
      x.storage()->bump_version();
    }
  }

  // The call is noted on the tape: what its gradient needs of arguments and results.
  static void tape(const std::shared_ptr<const Operation>& operation, const GradientUse& use,
                   const Arguments& in, const Results& out) {
    std::vector<Tensor> inputs;
    for (const Tensor* x : in) inputs.push_back(*x);
    std::vector<Tensor> saved(in.size() + out.size());
    const auto is_asked = [](std::uint64_t bits, std::size_t i) {
      return i < 64 && ((bits >> i) & 1U) != 0;
    };
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (is_asked(use.inputs, i)) saved[i] = in[i];
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (is_asked(use.outputs, i)) saved[in.size() + i] = out[i];
    }
    autograd::record(operation->name(), inputs, out.span(), saved,
                     [operation](const autograd::BackwardContext& context) {
                       const RunningScope scope(*operation);  // whom errors name
                       return operation->gradient(context);
                     });
  }

  static void run(const Operation& operation, const Arguments& in, Results& out) {
    OpGuide* const guide = detail::op_guide;
    if (guide == nullptr) [[likely]]
      return run_unguided(operation, in, out);
    const GuideScope nobody(nullptr);  // nor for what the operation runs itself
    if (!guide->guide(operation, in, out)) run_unguided(operation, in, out);
  }

  static void run_unguided(const Operation& operation, const Arguments& in, Results& out) {
    OpScope scope([&] { return operation.name(); });
    const RunningScope running(operation);
    const std::uint64_t requiring = autograd::is_grad_enabled() ? needed(in) : 0;
    if (requiring != 0) [[unlikely]] {
      if (const auto form = operation.for_gradient(requiring)) {
        return run(*form, in, out, requiring, scope);
      }
    }
    run(operation, in, out, requiring, scope);
  }

  static void run(const Operation& operation, const Arguments& in, Results& out,
                  std::uint64_t requiring, OpScope& scope) {
    if (operation.is_composition()) {
      scope.kernel("composed");
      for (Tensor& x : static_cast<const Composition&>(operation).compose(in)) {
        out.push(std::move(x));
      }
      return;
    }
    operation.infer(in, out);
    GradientUse use{GradientUse::Kind::None, 0, 0};
    if (requiring != 0) [[unlikely]] {
      if (out.in_place_) require_changeable(operation, out);
      use = operation.gradient_use(requiring);
      if (use.kind == GradientUse::Kind::Unsupported) {
        autograd::throw_not_differentiable(operation.name());
      }
    }
    // One that only changes a tensor in place has no arguments.
    const Device device =
        in.size() == 0 && out.in_place_ ? out[0].device() : common_device(operation, in);
    if (!device.is_cpu() && !out.views_) require_cuda(operation, in, out, device);
    if (requiring == 0 && !replay::is_recording()) [[likely]] {
      if (are_arranged(in, out)) [[likely]] {
        return unattended(operation, in, out, device, scope);
      }
      Arranged arranged;
      return unattended(operation, arrange(in, out, arranged), out, device, scope);
    }
    attended(operation, in, out, use, device, scope);
  }

  static void unattended(const Operation& operation, const Arguments& in, Results& out,
                         Device device, OpScope& scope) {
    if (out.in_place_) before_writes(operation, out, device);
    if (allocate_all(out, device)) calculate(operation, in, out, device, scope);
    scope.work([&] { return operation.work(in, out.span()); });
  }

  // While the call is recorded or differentiated. What happens within the operation is neither.
  static void attended(const Operation& operation, const Arguments& in, Results& out,
                       const GradientUse& use, Device device, OpScope& scope) {
    Arranged arranged;
    bool any = false;
    Arguments given = in;
    {
      const autograd::NoGradGuard no_grad;
      if (!are_arranged(in, out)) given = arrange(in, out, arranged);
    }
    if (out.in_place_) before_writes(operation, out, device);
    {
      const autograd::NoGradGuard no_grad;
      any = allocate_all(out, device);
      const replay::PauseRecording pause;
      if (any) calculate(operation, given, out, device, scope);
      scope.work([&] { return operation.work(given, out.span()); });
    }
    const std::shared_ptr<const Operation> kept = operation.clone();
    if (any && replay::is_recording()) {
      replay::Step step{.operation = kept, .inputs = {}, .outputs = {out.begin(), out.end()}};
      for (const Tensor* x : given) step.inputs.push_back(*x);
      replay::record(std::move(step));
    }
    if (use.kind == GradientUse::Kind::Defined) tape(kept, use, in, out);
  }
};

namespace detail {

thread_local constinit OpGuide* op_guide = nullptr;
thread_local constinit const Operation* running_operation = nullptr;

void run(const Operation& operation, const Arguments& in, Results& out) {
  Runner::run(operation, in, out);
}

}  // namespace detail

namespace {

std::string to_string(ArgumentCount count) {
  if (count.most == ArgumentCount::kNoLimit) return fmt::format("at least {}", count.least);
  if (count.most == count.least) return fmt::format("{}", count.least);
  return fmt::format("{} to {}", count.least, count.most);
}

}  // namespace

Results run_all(const Operation& operation, const Arguments& in) {
  const ArgumentCount count = operation.argument_count();
  QUANTA_CHECK(count.takes(in.size()), "{}: arguments: expected {}, got {}", operation.name(),
               to_string(count), in.size());
  Results results;
  Runner::run(operation, in, results);
  return results;
}

Results run_all(const Operation& operation, std::span<const Tensor> in) {
  std::vector<const Tensor*> list;
  for (const Tensor& x : in) list.push_back(&x);
  return run_all(operation, Arguments(list.data(), list.size()));
}

Tensor run(const Operation& operation, std::span<const Tensor> in) {
  return std::move(run_all(operation, in)[0]);
}

}  // namespace quanta
