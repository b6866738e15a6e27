#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/runtime/attribute.h"
#include "quanta/runtime/op_listener.h"
#include "quanta/runtime/tensor.h"

/// What an operation is, and how one is run.
///
/// Whatever calculates a tensor is an Operation: a small immutable value that holds the settings of
/// a call and knows how to check the arguments, what comes out, how that is calculated, what its
/// gradient is and what a plan may do with it. run() is the one place where an operation meets the
/// device, the allocator, the profiler, the tape and a recording: no operation asks whether
/// something is recorded or differentiated. Threads may share an operation that nobody changes.
///
///   struct Square : Op<Square> {
///     static constexpr std::string_view kName = "square";
///     static constexpr ArgumentCount kArguments{1};
///     void infer(const Arguments& in, Results& out) const override {
///       require_tensor(kName, "x", in[0], {DType::Float32});
///       out.arrange(0, in[0].suggested_format());
///       out.add(in[0].sizes(), DType::Float32, in[0].suggested_format());
///     }
///     std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
///       square_row(in[0].data<float>(), out[0].mutable_data<float>(), in[0].numel());
///       return "scalar";
///     }
///   };
///   Tensor square(const Tensor& x) { return run(Square{}, x); }
///
/// See examples/custom_op.cpp for one with a gradient and quantized codes.
namespace quanta {

namespace autograd {
class BackwardContext;
}  // namespace autograd

/// The tensors that a call is given, by position. An optional one that is left out is undefined.
class Arguments {
 public:
  Arguments() = default;
  Arguments(const Tensor* const* tensors, std::size_t count) : tensors_(tensors), count_(count) {}

  std::size_t size() const noexcept { return count_; }
  const Tensor& operator[](std::size_t i) const noexcept { return *tensors_[i]; }
  const Tensor* const* begin() const noexcept { return tensors_; }
  const Tensor* const* end() const noexcept { return tensors_ + count_; }

 private:
  const Tensor* const* tensors_ = nullptr;
  std::size_t count_ = 0;
};

/// How many tensors an operation takes. An optional one that is left out counts: it is undefined.
struct ArgumentCount {
  std::size_t least = 0;
  std::size_t most = 0;

  constexpr explicit ArgumentCount(std::size_t count) : least(count), most(count) {}
  constexpr ArgumentCount(std::size_t at_least, std::size_t at_most)
      : least(at_least), most(at_most) {}
  static constexpr ArgumentCount at_least(std::size_t count) { return {count, kNoLimit}; }
  constexpr bool takes(std::size_t count) const noexcept { return count >= least && count <= most; }

  static constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);
};

/// What a call gives. Operation::infer adds one tensor after the other, of which only sizes,
/// strides, dtype and quantizer are known; run() gives them memory.
class Results {
 public:
  /// A plain tensor. Throws ArgumentError for sizes that no tensor can have.
  void add(const Dims& sizes, DType dtype, MemoryFormat format = MemoryFormat::Contiguous);
  /// A tensor of codes. The parameters are trusted: see check_quantizer.
  void add(const Dims& sizes, DType dtype, const Quantizer& quantizer,
           MemoryFormat format = MemoryFormat::Contiguous);
  /// A tensor with the dtype and quantizer of `like`, and with these sizes and strides.
  void add_like(const Tensor& like, const Dims& sizes, const Dims& strides);
  void add_like(const Tensor& like, const Dims& sizes,
                MemoryFormat format = MemoryFormat::Contiguous);
  /// The operation changes this argument in place; it is the next result.
  void add_in_place(const Tensor& argument);
  /// A view of an argument, off the tape: there is nothing to calculate. All results are views
  /// then.
  void add_view(Tensor view);

  /// The kernel wants argument `i` dense in this order; run() copies it where it is not. For the
  /// first kArranged arguments.
  void arrange(std::size_t i, MemoryFormat format);
  /// The results belong on this device, not on that of the arguments.
  void place(Device device) noexcept { place_ = device; }
  /// infer() has looked at the values of this argument, so that a recorded call can only be
  /// replayed when they never change.
  void reads_values(std::string_view op, const Tensor& argument);

  std::size_t size() const noexcept { return count_; }
  bool empty() const noexcept { return count_ == 0; }
  Tensor& operator[](std::size_t i) noexcept { return begin()[i]; }
  const Tensor& operator[](std::size_t i) const noexcept { return begin()[i]; }
  Tensor* begin() noexcept { return many_.empty() ? few_.data() : many_.data(); }
  const Tensor* begin() const noexcept { return many_.empty() ? few_.data() : many_.data(); }
  Tensor* end() noexcept { return begin() + count_; }
  const Tensor* end() const noexcept { return begin() + count_; }
  std::span<const Tensor> span() const noexcept { return {begin(), count_}; }

  static constexpr std::size_t kArranged = 8;

 private:
  friend struct Runner;
  void push(Tensor tensor);

  std::array<Tensor, 3> few_;
  std::vector<Tensor> many_;  // all of them, once there are more than few_ holds
  std::size_t count_ = 0;
  /// MemoryFormat::Preserve stands for any order.
  std::array<MemoryFormat, kArranged> arranged_{MemoryFormat::Preserve, MemoryFormat::Preserve,
                                                MemoryFormat::Preserve, MemoryFormat::Preserve,
                                                MemoryFormat::Preserve, MemoryFormat::Preserve,
                                                MemoryFormat::Preserve, MemoryFormat::Preserve};
  bool arranges_ = false;
  bool in_place_ = false;
  bool views_ = false;
  std::optional<Device> place_;
};

/// What an operation's gradient is made of.
struct GradientUse {
  enum class Kind : std::uint8_t {
    Unsupported,  ///< a call with a tensor that requires a gradient is refused
    None,         ///< integers, codes or truth values come out: no gradient, no error
    Defined,      ///< Operation::gradient
  };
  Kind kind = Kind::Unsupported;
  /// Bit i: the gradient needs argument i (result i) as it was; BackwardContext::input and output.
  std::uint64_t inputs = 0;
  std::uint64_t outputs = 0;

  static constexpr GradientUse none() { return {Kind::None, 0, 0}; }
  /// For a gradient that needs these; sizes and dtypes of all arguments are known to it anyway.
  static constexpr GradientUse of(std::uint64_t inputs, std::uint64_t outputs = 0) {
    return {Kind::Defined, inputs, outputs};
  }
};

/// What becomes of each 8-bit code, by its bits.
using ByteTable = std::array<std::uint8_t, 256>;

/// What a plan may make of a call.
struct PlanUse {
  /// Between floats and codes of one scale per tensor, in the same order in memory.
  enum class Role : std::uint8_t { Other, Quantize, Dequantize };

  /// Result 0 may lie where argument 0 lay.
  bool in_place = false;
  /// Calls that are equal and have the same arguments give the same results: one is enough. Not so
  /// for random numbers.
  bool repeatable = true;
  Role role = Role::Other;
  /// Set for a call that maps the bytes of argument 0, in their order in memory, to those of
  /// result 0.
  std::shared_ptr<const ByteTable> table{};
  /// Set for a call that adds the codes of its two arguments, quantized per tensor and of one size,
  /// by the formula of quantized::add; `relu` follows.
  struct CodeSum {
    bool relu = false;
  };
  std::optional<CodeSum> sum{};
};

class Operation {
 public:
  virtual ~Operation() = default;

  /// "quantized::conv2d_relu". Lives as long as the process.
  virtual std::string_view name() const noexcept = 0;

  /// With these settings. run() checks it before infer().
  virtual ArgumentCount argument_count() const noexcept = 0;

  /// Checks the arguments, and says what comes out. Throws ArgumentError or UnsupportedError that
  /// names operation and argument. Changes nothing.
  virtual void infer(const Arguments& in, Results& out) const = 0;

  /// Calculates the results, which have at least one element, from checked arguments; gives the
  /// name of the kernel that was chosen, which lives as long as the process. Safe from many
  /// threads.
  virtual std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const = 0;
  /// The same on a CUDA device: called for arguments on one, when the first one's dtype is among
  /// cuda_dtypes(). What it starts may still run when it returns.
  virtual std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const;
  /// What the first argument may be on a CUDA device; empty: there is no kernel. A composition says
  /// what all that it calls takes.
  virtual std::span<const DType> cuda_dtypes() const noexcept;

  /// What there is to do, for rates. By default the bytes of all arguments and results.
  virtual OpWork work(const Arguments& in, std::span<const Tensor> out) const;

  /// `needed`: bit i is set when argument i requires a gradient.
  virtual GradientUse gradient_use(std::uint64_t needed) const;
  /// A gradient for each argument, of its sizes and dtype, or undefined. What it calculates is not
  /// recorded.
  virtual std::vector<Tensor> gradient(const autograd::BackwardContext& context) const;
  /// The form of this operation that runs when gradients are asked for (`needed` as above), where
  /// it is another one: with results that only the gradient needs, or with a kernel that has one.
  /// Null: this one.
  virtual std::shared_ptr<const Operation> for_gradient(std::uint64_t needed) const;

  virtual PlanUse plan_use(const Arguments& in, std::span<const Tensor> out) const;
  /// The same operation with each byte of result 0 looked up in a table at the end; for one that is
  /// a table, that of another table. Null: it has no such form.
  virtual std::shared_ptr<const Operation> with_table(std::shared_ptr<const ByteTable> table) const;
  /// The same operation with the codes of a further argument, the last one, added to those of result
  /// 0; the sum has the parameters of `to`. Null: it has no such form.
  virtual std::shared_ptr<const Operation> with_sum(const PlanUse::CodeSum& sum,
                                                    const Quantizer& to) const;
  /// The same operation with `next` done to result 0 in the same pass. `next` works element by element
  /// on tensors that lie as its result does; result 0 is its argument `argument`, and its others
  /// follow this operation's. Null: it has no such form.
  virtual std::shared_ptr<const Operation> with_next(const Operation& next,
                                                     std::size_t argument) const;
  /// On the CPU: the same operation with a further result, the last one, that says what numbers are
  /// in result 0: the smallest and the largest, Float32 [2], of which one is not finite where a
  /// number is not. Null: it has no such form.
  virtual std::shared_ptr<const Operation> with_range() const;
  /// On the CPU: the same operation with that of argument 0 as a further argument, the last one,
  /// instead of looking for it. Null: it has no such form.
  virtual std::shared_ptr<const Operation> with_range_given() const;
  /// For PlanUse::Role::Quantize: the operation from 8-bit codes instead of floats, by a table.
  virtual std::shared_ptr<const Operation> with_codes(std::shared_ptr<const ByteTable> table) const;

  /// The memory of what cpu() reads beside its arguments, packed weights, once it has run; empty
  /// where that is not known. A plan lets kernels ask for it while the step before runs.
  virtual std::span<const std::byte> weight_memory() const noexcept;

  /// Whether row i of each result, along dimension 0, is made of row i of each argument and of
  /// nothing else, to the last bit and whatever the number of rows and of threads is. Arguments that
  /// are the same in every call may be no such batch. A plan lets one thread calculate some rows and
  /// another the others, or runs steps that need nothing of each other at the same time.
  virtual bool works_by_rows() const noexcept;

  /// A list of calls whose results are this one's: empty but for a Composition.
  virtual bool is_composition() const noexcept { return false; }

  virtual std::span<const AttributeInfo> attributes() const noexcept;
  virtual std::shared_ptr<Operation> clone() const = 0;
};

/// An operation that is made of other operations: compose() calls them, and a recording and the
/// tape see those. The profiler shows it around them.
class Composition : public Operation {
 public:
  virtual std::vector<Tensor> compose(const Arguments& in) const = 0;

  bool is_composition() const noexcept final { return true; }
  void infer(const Arguments& in, Results& out) const final;
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const final;
};

namespace detail {
/// What Op and ComposedOp share: what `Derived` says by constants.
template <typename Derived, typename Base>
class OpBase : public Base {
 public:
  std::string_view name() const noexcept override {
    if constexpr (requires { Derived::kName; }) {
      return Derived::kName;
    } else {
      return {};  // Derived says it
    }
  }
  ArgumentCount argument_count() const noexcept override {
    static_assert(
        requires { Derived::kArguments; },
        "an operation says how many tensors it takes: static constexpr ArgumentCount kArguments");
    return Derived::kArguments;
  }
  bool works_by_rows() const noexcept override {
    if constexpr (requires { Derived::kWorksByRows; }) {
      return Derived::kWorksByRows;
    } else {
      return Base::works_by_rows();
    }
  }
  std::span<const AttributeInfo> attributes() const noexcept override {
    if constexpr (requires { Derived::attribute_table(); }) {
      return Derived::attribute_table();
    } else {
      return {};
    }
  }
  std::shared_ptr<Operation> clone() const override {
    return std::make_shared<Derived>(static_cast<const Derived&>(*this));
  }
};
}  // namespace detail

/// Base of an operation: `struct ReLU : Op<ReLU>`. It has a copy constructor and
/// - `static constexpr std::string_view kName`, or name() where one type serves several names;
/// - `static constexpr ArgumentCount kArguments`, the range over all settings; argument_count() as
///   well where the settings decide;
/// - `static std::span<const AttributeInfo> attribute_table()` when it has settings;
/// - `static constexpr bool kWorksByRows = true` where works_by_rows() holds for all settings.
template <typename Derived>
using Op = detail::OpBase<Derived, Operation>;
template <typename Derived>
using ComposedOp = detail::OpBase<Derived, Composition>;

/// Whether both have the same type, name and settings.
bool operator==(const Operation& a, const Operation& b);
/// "leaky_relu(negative_slope=0.01)".
std::string to_string(const Operation& operation);
/// The setting of that name. Throws ArgumentError that lists the names there are.
Attribute attribute_of(const Operation& operation, std::string_view name);
/// Changes a setting. Throws ArgumentError for an unknown name, a value of another type or a
/// setting that follows from others.
void set_attribute(Operation& operation, std::string_view name, const Attribute& value);

/// Throws ArgumentError `op: argument: ...` for an undefined tensor, UnsupportedError for a dtype
/// that is not in the list.
void require_tensor(std::string_view op, std::string_view argument, const Tensor& x,
                    std::initializer_list<DType> dtypes);

/// Copies `result`, which other operations have calculated, into `out`: for an operation whose
/// cpu() calls others. Throws UnsupportedError where sizes, dtype or quantizer differ, which
/// happens when values that change from call to call decide about them.
void copy_result(const Tensor& result, const Tensor& out);

/// Stands between a caller and the operations that it runs, on one thread: see GuideScope.
class OpGuide {
 public:
  /// Runs the call in a way of its own and returns true, or returns false: run() goes on as if there
  /// were no guide. No guide hears of the operations that are run meanwhile. What it throws, the
  /// caller gets.
  virtual bool guide(const Operation& operation, const Arguments& in, Results& out) = 0;

 protected:
  ~OpGuide() = default;
};

namespace detail {
/// Trusts the number of arguments.
void run(const Operation& operation, const Arguments& in, Results& out);
/// The calling thread's guide, or null.
extern thread_local constinit OpGuide* op_guide;
/// The innermost operation that the calling thread runs, or null.
extern thread_local constinit const Operation* running_operation;
}  // namespace detail

/// Makes `guide` (or nobody, for null) the guide of the calling thread's operations while it lives.
class GuideScope {
 public:
  explicit GuideScope(OpGuide* guide) noexcept : outer_(detail::op_guide) {
    detail::op_guide = guide;
  }
  ~GuideScope() { detail::op_guide = outer_; }
  GuideScope(const GuideScope&) = delete;
  GuideScope& operator=(const GuideScope&) = delete;

 private:
  OpGuide* outer_;
};

/// Runs an operation; gives all results. Throws ArgumentError for too few or too many arguments;
/// what its infer() throws; UnsupportedError for a device without a kernel, for a tensor that
/// requires a gradient where there is none, and for what a recording cannot replay.
Results run_all(const Operation& operation, const Arguments& in);
Results run_all(const Operation& operation, std::span<const Tensor> in);

template <typename Kind, typename... Tensors>
requires(std::is_base_of_v<Operation, Kind> && (std::is_base_of_v<Tensor, Tensors> && ...)) Results
    run_all(const Kind& operation, const Tensors&... tensors) {
  const std::array<const Tensor*, sizeof...(tensors)> list{&tensors...};
  const Arguments in(list.data(), list.size());
  if constexpr (requires { Kind::kArguments; }) {
    static_assert(Kind::kArguments.takes(sizeof...(tensors)), "not as many as kArguments says");
    Results results;
    detail::run(operation, in, results);
    return results;
  } else {
    return run_all(static_cast<const Operation&>(operation), in);
  }
}

/// Runs an operation; gives its first result.
///
///   Tensor relu(const Tensor& x) { return run(ReLU{}, x); }
template <typename Kind, typename... Tensors>
requires(std::is_base_of_v<Operation, Kind> && (std::is_base_of_v<Tensor, Tensors> && ...)) Tensor
    run(const Kind& operation, const Tensors&... tensors) {
  return std::move(run_all(operation, tensors...)[0]);
}
Tensor run(const Operation& operation, std::span<const Tensor> in);

}  // namespace quanta
