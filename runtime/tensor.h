#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/runtime/device.h"
#include "quanta/runtime/dims.h"
#include "quanta/runtime/dtype.h"
#include "quanta/runtime/intrusive_ptr.h"
#include "quanta/runtime/quantizer.h"
#include "quanta/runtime/storage.h"

/// Tensors: handles, views, copies, and their gradients.
///
/// A copy of a Tensor is another handle for the same elements, and so is a view; references are
/// counted atomically. Many threads may read a tensor at once, each through a handle of its own or
/// through one that nobody assigns to: calling const methods that do not change elements, running
/// ops on it, making views. Writing to elements (mutable_data, methods and functions whose names
/// end in an underscore) is for one thread while no other uses the tensor or a view of it. What
/// asks for gradients (set_requires_grad, set_grad, register_hook) is for one thread as well;
/// backward may be called from several threads on tapes of their own that meet in leaves
/// (runtime/autograd.h).
///
/// Methods throw ArgumentError for sizes, dimensions, dtypes and parameters that do not fit,
/// UnsupportedError for a device without kernels, BackendError when memory is out. Only defined()
/// may be asked of an undefined tensor.
namespace quanta {

/// Memory order of the elements. Logical order is always N, C, [[D,] H,] W; channels-last keeps
/// C innermost in memory (NHWC, NDHWC; for 3-d tensors NLC).
enum class MemoryFormat : std::uint8_t { Contiguous, ChannelsLast, Preserve };

class Tensor;
class QTensor;

namespace autograd {
struct Meta;
struct MetaDelete {
  void operator()(Meta* meta) const noexcept;
};
/// Called with the gradient of a tensor; gives the gradient to go on with (undefined: the same).
using Hook = std::function<Tensor(const Tensor& grad)>;
}  // namespace autograd

/// Whether a tensor can be asked for its elements as T: a number of 8 to 64 bits, bool, std::byte.
template <typename T>
inline constexpr bool is_element_type = std::is_same_v<T, std::remove_cvref_t<T>> &&
                                        (std::is_same_v<T, std::byte> || std::is_same_v<T, float> ||
                                         std::is_same_v<T, double> ||
                                         (std::is_integral_v<T> &&
                                          (std::is_signed_v<T> || sizeof(T) <= 2)));

/// The dtype whose elements are T: Float32 for float, Int64 for std::int64_t, ...
template <typename T>
constexpr DType dtype_of() {
  static_assert(is_element_type<T> && !std::is_same_v<T, std::byte>,
                "quanta: no dtype has elements of this type: use float, double, bool, a signed "
                "integer of 8 to 64 bits, std::uint8_t or std::uint16_t");
  if constexpr (std::is_same_v<T, bool>) {
    return DType::Bool;
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? DType::Float32 : DType::Float64;
  } else if constexpr (sizeof(T) == 1) {
    return std::is_signed_v<T> ? DType::Int8 : DType::UInt8;
  } else if constexpr (sizeof(T) == 2) {
    return std::is_signed_v<T> ? DType::Int16 : DType::UInt16;
  } else {
    return sizeof(T) == 4 ? DType::Int32 : DType::Int64;
  }
}

/// What a Tensor handle points to. Internal; use Tensor.
struct TensorImpl : RefCounted {
  IntrusivePtr<Storage> storage;
  std::byte* data = nullptr;  ///< storage->data() plus the offset
  Dims sizes;
  Dims strides;  ///< in elements
  std::int64_t numel = 0;
  DType dtype = DType::Float32;
  Device device;
  Quantizer quantizer;  ///< meaningful for quantized dtypes
  /// Its place on the tape; null when no gradient is asked for.
  std::unique_ptr<autograd::Meta, autograd::MetaDelete> autograd;
};

/// An n-dimensional array: a cheap handle to shared storage, sizes, strides, dtype and device.
/// Copying a Tensor copies the handle. Views share storage with what they view. A default
/// constructed Tensor is undefined: only defined() may be asked.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(IntrusivePtr<TensorImpl> impl) : impl_(std::move(impl)) {}

  // Factories ------------------------------------------------------------------------------

  /// Uninitialised memory. `dtype` may not be quantized (see QTensor::empty_*).
  static Tensor empty(const Dims& sizes, DType dtype = DType::Float32,
                      MemoryFormat format = MemoryFormat::Contiguous,
                      Device device = Device::cpu());
  static Tensor zeros(const Dims& sizes, DType dtype = DType::Float32);
  static Tensor ones(const Dims& sizes, DType dtype = DType::Float32);
  static Tensor full(const Dims& sizes, double value, DType dtype = DType::Float32);
  /// 0, 1, ..., count-1.
  static Tensor arange(std::int64_t count, DType dtype = DType::Float32);
  /// A copy of the values, in row-major order. Throws ArgumentError when the counts differ.
  static Tensor from_values(std::span<const float> values, const Dims& sizes);
  static Tensor from_values(std::initializer_list<float> values) {
    return from_values({values.begin(), values.size()}, {static_cast<std::int64_t>(values.size())});
  }
  static Tensor from_values(std::initializer_list<float> values, const Dims& sizes) {
    return from_values({values.begin(), values.size()}, sizes);
  }
  static Tensor from_int64(std::span<const std::int64_t> values);
  /// A copy of a vector, array or span of numbers, in row-major order; the dtype is that of its
  /// elements (dtype_of). Throws ArgumentError when the counts differ.
  template <typename Range>
  static Tensor from_span(const Range& values, const Dims& sizes) {
    static_assert(
        std::ranges::contiguous_range<const Range> && std::ranges::sized_range<const Range>,
        "quanta: Tensor::from_span takes numbers that lie one behind the other: a "
        "std::vector (not of bool), std::array or std::span");
    using T = std::remove_cvref_t<std::ranges::range_value_t<const Range>>;
    return copy_of(std::ranges::data(values), std::ranges::size(values), sizes, dtype_of<T>());
  }
  template <typename Range>
  static Tensor from_span(const Range& values) {
    return from_span(values, Dims(static_cast<std::int64_t>(std::ranges::size(values))));
  }
  /// A 0-d tensor.
  static Tensor scalar(double value, DType dtype = DType::Float32);
  /// The user's own memory, not copied: `sizes` with row-major or given strides (in elements,
  /// not negative). `deleter` runs when the last tensor that uses the memory is gone; when the call
  /// throws, it does not run, and the memory stays the caller's.
  static Tensor from_blob(void* data, const Dims& sizes, DType dtype,
                          std::function<void(void*)> deleter = {});
  static Tensor from_blob(void* data, const Dims& sizes, const Dims& strides, DType dtype,
                          std::function<void(void*)> deleter = {});
  /// The same for constant memory: mutable_data and functions that change elements throw
  /// ArgumentError for this tensor and its views. clone() can be written to.
  static Tensor from_blob(const void* data, const Dims& sizes, DType dtype,
                          std::function<void(const void*)> deleter = {});
  static Tensor from_blob(const void* data, const Dims& sizes, const Dims& strides, DType dtype,
                          std::function<void(const void*)> deleter = {});
  static Tensor from_blob(std::nullptr_t, const Dims& sizes, DType dtype) {
    return from_blob(static_cast<void*>(nullptr), sizes, dtype);
  }

  // What it is -----------------------------------------------------------------------------

  bool defined() const noexcept { return static_cast<bool>(impl_); }
  const Dims& sizes() const noexcept { return impl_->sizes; }
  const Dims& strides() const noexcept { return impl_->strides; }
  /// Number of dimensions.
  std::int64_t dim() const noexcept { return static_cast<std::int64_t>(impl_->sizes.size()); }
  /// Size along `d`; negative `d` counts from the end. Throws ArgumentError out of range.
  std::int64_t size(std::int64_t d) const;
  std::int64_t numel() const noexcept { return impl_->numel; }
  DType dtype() const noexcept { return impl_->dtype; }
  Device device() const noexcept { return impl_->device; }
  bool is_quantized() const noexcept { return quanta::is_quantized(impl_->dtype); }
  bool is_floating_point() const noexcept { return quanta::is_floating_point(impl_->dtype); }
  /// The bytes that the elements take, as if contiguous.
  std::size_t nbytes() const noexcept { return storage_bytes(impl_->dtype, impl_->numel); }
  /// Elements between the storage's begin and the first element.
  std::int64_t storage_offset() const noexcept;
  const IntrusivePtr<Storage>& storage() const noexcept { return impl_->storage; }
  /// Whether the elements lie in memory without gaps in that order. Dimensions of size 1 do not
  /// matter, so a tensor can be both Contiguous and ChannelsLast.
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const noexcept;
  /// Whether the elements lie without gaps or overlap in some order of the dimensions.
  bool is_dense() const noexcept;
  /// The order that an op should give its result: ChannelsLast for a 3, 4 or 5-d tensor (of codes: 4
  /// or 5-d) whose elements lie so and are not contiguous, else Contiguous.
  MemoryFormat suggested_format() const noexcept;
  /// Whether both are handles of the same tensor; views of the same elements are not.
  bool is_same(const Tensor& other) const noexcept { return impl_ == other.impl_; }

  // Data -----------------------------------------------------------------------------------

  // The elements of a tensor on the CPU. For one on a CUDA device these throw UnsupportedError, and
  // name the operation that asked: cpu() copies it.

  /// The address of the first element. Write through mutable_data, which counts as a change.
  void* data_ptr() const {
    require_host();
    return impl_->data;
  }
  /// The address of the first element on whatever device; only code of that device can follow it.
  std::byte* device_ptr() const noexcept { return impl_->data; }
  /// Grows with every write to the storage (mutable_data, copy_, fill_, in-place ops).
  std::uint32_t version() const noexcept { return impl_->storage->version(); }
  /// The elements as T. QUInt8/QUInt4x2 are std::uint8_t, QInt8 std::int8_t, QInt32 std::int32_t,
  /// Bool is bool, 16-bit and 8-bit floats are std::uint16_t and std::uint8_t bit patterns.
  /// Throws ArgumentError when T does not match the dtype.
  template <typename T>
  const T* data() const {
    static_assert(is_element_type<T>,
                  "quanta: Tensor::data<T>: no dtype has elements of this type: ask for float, "
                  "double, bool, a signed integer, std::uint8_t or std::uint16_t, without const");
    require_type(size_and_kind<T>());
    require_host();
    return reinterpret_cast<const T*>(impl_->data);
  }
  /// The same for writing, which counts as a change.
  template <typename T>
  T* mutable_data() const {
    static_assert(is_element_type<T>,
                  "quanta: Tensor::mutable_data<T>: no dtype has elements of this type: ask for "
                  "float, double, bool, a signed integer, std::uint8_t or std::uint16_t");
    require_type(size_and_kind<T>());
    require_host();
    impl_->storage->bump_version();
    return reinterpret_cast<T*>(impl_->data);
  }
  /// The elements (of sub-byte dtypes: the packed bytes) as a span, in row-major order; valid while
  /// a tensor shares the storage. Throws ArgumentError when T does not match the dtype, or when the
  /// tensor is not contiguous.
  template <typename T>
  std::span<const T> span() const {
    require_contiguous("Tensor::span");
    return {data<T>(), nbytes() / sizeof(T)};
  }
  /// The same for writing, which counts as a change.
  template <typename T>
  std::span<T> mutable_span() const {
    require_contiguous("Tensor::mutable_span");
    return {mutable_data<T>(), nbytes() / sizeof(T)};
  }
  /// The only element as a double (quantized: dequantized). Throws ArgumentError if numel() != 1.
  double item() const;
  /// The elements in logical order as float (any dtype; quantized: dequantized) or int64 (integer
  /// dtypes and codes of quantized ones).
  std::vector<float> to_float_vector() const;
  std::vector<std::int64_t> to_int64_vector() const;

  // Views: share storage -------------------------------------------------------------------
  // Each keeps the quantization parameters. Per-channel tensors follow the channel axis (one
  // channel taken out of it becomes per tensor); a view that would tear or merge the axis is
  // refused with ArgumentError.

  /// Other sizes over the same elements; one size may be -1. Throws ArgumentError when the
  /// strides do not allow it (then use reshape).
  Tensor view(const Dims& sizes) const;
  /// view() where possible, else a contiguous copy.
  Tensor reshape(const Dims& sizes) const;
  Tensor flatten(std::int64_t start_dim = 0, std::int64_t end_dim = -1) const;
  Tensor permute(const Dims& order) const;
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const;
  Tensor t() const;
  Tensor select(std::int64_t dim, std::int64_t index) const;
  /// Elements start, start+step, ... below `end` (clamped as in Python; step > 0).
  Tensor slice(std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  Tensor narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const;
  /// Repeats dimensions of size 1 without copying; -1 keeps a size.
  Tensor expand(const Dims& sizes) const;
  Tensor squeeze() const;
  Tensor squeeze(std::int64_t dim) const;
  Tensor unsqueeze(std::int64_t dim) const;
  /// Any sizes and strides (>= 0) that stay within the storage; per-tensor quantized or plain.
  Tensor as_strided(const Dims& sizes, const Dims& strides, std::int64_t storage_offset) const;
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  /// Another handle for the same elements: later changes of the sizes or parameters of one do not
  /// show in the other. It asks for no gradient.
  Tensor detach() const;

  // Copies ---------------------------------------------------------------------------------

  /// Itself when already in that order, else a copy in it.
  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  Tensor clone(MemoryFormat format = MemoryFormat::Preserve) const;
  /// Another plain dtype (not from or to quantized ones: see quantize_per_tensor, dequantize).
  Tensor to(DType dtype) const;
  /// Itself when it is on that device, else a copy there, with the same strides where the elements
  /// lie without gaps. Gradients come back. Throws BackendError for a device that is not there.
  Tensor to(Device device) const;
  Tensor cpu() const { return to(Device::cpu()); }
  Tensor cuda(std::int8_t index = 0) const { return to(Device::cuda(index)); }
  /// Overwrites the elements with those of `src` (broadcast to sizes()). Plain to plain converts;
  /// quantized to quantized of the same dtype and sizes takes over the parameters of `src`;
  /// float to quantized quantizes with this tensor's parameters; quantized to float is refused.
  /// Quantizing goes through int32 as in torch, so that per tensor values beyond 2^31 steps of the
  /// scale do not saturate: quantize_per_tensor does. Throws ArgumentError when elements of this
  /// tensor share memory.
  const Tensor& copy_(const Tensor& src) const;
  /// Every element becomes `value` (quantized: its code under the tensor's parameters).
  const Tensor& fill_(double value) const;
  /// The same bits under another plain dtype of the same width (UInt8 codes as Int8, ...), a view.
  /// As Bool, which has two values, a copy: every byte but 0 is true.
  Tensor bit_cast(DType dtype) const;

  /// Sizes, dtype and all elements equal (NaN differs from NaN); quantized: parameters as well.
  bool equal(const Tensor& other) const;

  /// Checked view of this as quantized: throws ArgumentError naming `op` and `argument`.
  QTensor as_quantized(std::string_view op = "as_quantized", std::string_view argument = "x") const;

  // Functions as members: what the functions of these names do (ops/reduce.h, ops/elementwise.h,
  // ops/activation.h, ops/matmul.h), which say what dtypes they take and what they throw. ------
  Tensor sum() const;
  Tensor sum(const Dims& dims, bool keepdim = false) const;
  Tensor mean() const;
  Tensor mean(const Dims& dims, bool keepdim = false) const;
  Tensor max() const;
  Tensor min() const;
  Tensor argmax() const;
  Tensor argmax(std::int64_t dim, bool keepdim = false) const;
  Tensor abs() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor sqrt() const;
  Tensor pow(double exponent) const;
  Tensor pow(const Tensor& exponent) const;
  Tensor relu() const;
  Tensor sigmoid() const;
  Tensor tanh() const;
  Tensor softmax(std::int64_t dim) const;
  Tensor matmul(const Tensor& other) const;

  // Gradients: see runtime/autograd.h ------------------------------------------------------
  /// Whether ops on this tensor are recorded, so that backward() reaches it.
  bool requires_grad() const noexcept { return impl_->autograd != nullptr; }
  /// Starts (or ends) recording. Throws ArgumentError for a dtype that is not floating point; only
  /// a leaf's recording can be ended (detach() gives one).
  const Tensor& set_requires_grad(bool on = true) const;
  /// Whether no recorded op made it: the tensors whose gradients backward() keeps.
  bool is_leaf() const noexcept;
  /// What backward() has summed up; undefined before.
  Tensor grad() const;
  /// Puts `gradient` (of the same sizes and dtype, or undefined) in its place.
  void set_grad(const Tensor& gradient) const;
  void clear_grad() const;
  /// Keeps the gradient of a tensor that is no leaf as well, as its hooks leave it.
  const Tensor& retain_grad() const;
  /// Adds the gradient of this tensor, weighted with `gradient` (may be left out for one element),
  /// to the grad() of every leaf that it was calculated from. The tape is freed unless it is
  /// retained. Throws ArgumentError: nothing recorded, no gradient given for several elements, the
  /// tape already freed, or a saved tensor changed since.
  void backward(const Tensor& gradient = {}, bool retain_graph = false) const;
  /// Runs `hook` on the gradient of this tensor each time it is complete. A hook may remove itself;
  /// one that holds a tensor that was calculated from this one is never freed.
  std::uint64_t register_hook(autograd::Hook hook) const;
  void remove_hook(std::uint64_t id) const;

  const IntrusivePtr<TensorImpl>& impl() const noexcept { return impl_; }

 private:
  struct ElementKind {
    std::uint8_t bytes;
    char kind;  // 'f' floating, 'i' signed, 'u' unsigned, 'b' bool
  };
  template <typename T>
  static constexpr ElementKind size_and_kind() {
    if constexpr (std::is_same_v<T, bool>) {
      return {1, 'b'};
    } else if constexpr (std::is_floating_point_v<T>) {
      return {sizeof(T), 'f'};
    } else {
      return {sizeof(T), std::is_signed_v<T> ? 'i' : 'u'};
    }
  }
  static Tensor copy_of(const void* values, std::size_t count, const Dims& sizes, DType dtype);
  void require_contiguous(std::string_view op) const;
  void require_type(ElementKind wanted) const {
    if (!matches_type(wanted)) throw_type_mismatch(wanted);
  }
  bool matches_type(ElementKind wanted) const noexcept;
  void require_host() const {
    if (!impl_->device.is_cpu()) [[unlikely]]
      throw_not_on_host();
  }
  [[noreturn]] void throw_not_on_host() const;
  [[noreturn]] void throw_type_mismatch(ElementKind wanted) const;

 protected:
  IntrusivePtr<TensorImpl> impl_;
};

/// A Tensor known to be quantized. Tensor -> QTensor is checked, QTensor -> Tensor is free.
class QTensor : public Tensor {
 public:
  QTensor() = default;
  /// Throws ArgumentError when `tensor` is not quantized.
  explicit QTensor(Tensor tensor);

  /// Uninitialised codes with one scale (> 0, finite) and zero point (within the dtype's range).
  /// Same as torch._empty_affine_quantized. Throws ArgumentError.
  static QTensor empty(const Dims& sizes, double scale, std::int64_t zero_point, DType dtype,
                       MemoryFormat format = MemoryFormat::Contiguous);
  /// Uninitialised codes with the parameters of `quantizer`.
  static QTensor empty(const Dims& sizes, DType dtype, const Quantizer& quantizer,
                       MemoryFormat format = MemoryFormat::Contiguous);
  /// Codes given as a plain integer tensor (UInt8 -> QUInt8, Int8 -> QInt8, Int32 -> QInt32),
  /// storage shared. Same as torch._make_per_tensor_quantized_tensor, but without a copy.
  static QTensor from_int_repr(const Tensor& codes, const Quantizer& quantizer);
  /// The same for sub-byte dtypes: `packed` is a UInt8 tensor of the packed bytes.
  static QTensor from_packed_bytes(const Tensor& packed, const Dims& sizes, DType dtype,
                                   const Quantizer& quantizer);

  const Quantizer& quantizer() const noexcept { return impl_->quantizer; }
  QScheme qscheme() const noexcept { return impl_->quantizer.scheme; }
  bool is_per_channel() const noexcept { return quanta::is_per_channel(qscheme()); }
  // The parameters of a tensor quantized per tensor. Throw ArgumentError for one per channel.
  double q_scale() const;
  std::int64_t q_zero_point() const;
  // The parameters of a tensor quantized per channel: Float64 [C] and Int64 [C], for float qparams
  // Float32 [C] both. Throw ArgumentError for one quantized per tensor.
  Tensor q_per_channel_scales() const;
  Tensor q_per_channel_zero_points() const;
  std::int64_t q_per_channel_axis() const;

  /// The codes as plain integers (UInt8, Int8, Int32; sub-byte kinds: flat packed bytes), storage
  /// shared with this tensor.
  Tensor int_repr_view() const;

  /// New parameters for the same codes, storage shared. Checked as in empty().
  QTensor with_quantizer(const Quantizer& quantizer) const;
};

/// Throws ArgumentError `op: ...` unless the parameters suit dtype and sizes: scale finite and > 0,
/// zero point in the dtype's range, axis and lengths right for per-channel ones.
void check_quantizer(std::string_view op, const Quantizer& quantizer, DType dtype,
                     const Dims& sizes);

/// The strides of a row-major (or channels-last) tensor of these sizes.
Dims contiguous_strides(const Dims& sizes, MemoryFormat format = MemoryFormat::Contiguous);

/// `dim` counted from the front. Throws ArgumentError `op: argument: ...` outside [-rank, rank).
std::int64_t wrap_dim(std::int64_t dim, std::int64_t rank, std::string_view op,
                      std::string_view argument = "dim");

/// Torch's broadcasting of two shapes. Throws ArgumentError `op: ...`.
Dims broadcast_sizes(const Dims& lhs, const Dims& rhs, std::string_view op);

/// As torch prints: values in brackets, then size, dtype, and for quantized tensors
/// `quantization_scheme=..., scale=..., zero_point=...`. Long tensors are summarised.
std::string to_string(const Tensor& tensor);
std::ostream& operator<<(std::ostream& stream, const Tensor& tensor);

}  // namespace quanta
