#include "quanta/runtime/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "quanta/runtime/allocator.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/dims_by_stride.h"
#include "quanta/runtime/detail/element.h"
#include "quanta/runtime/detail/require_tensor.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/recorder.h"

namespace quanta {
namespace {

// Factories calculate the same in every run.
Tensor constant(Tensor x) {
  if (replay::is_recording()) replay::mark_constant(x);
  return x;
}

// All but the memory.
IntrusivePtr<TensorImpl> make_impl(const Dims& sizes, const Dims& strides, DType dtype) {
  IntrusivePtr<TensorImpl> impl(new TensorImpl);
  impl->sizes = sizes;
  impl->strides = strides;
  impl->numel = product(sizes);
  impl->dtype = dtype;
  return impl;
}

Tensor with_memory(IntrusivePtr<TensorImpl> impl, IntrusivePtr<Storage> storage,
                   std::byte* begin) noexcept {
  impl->device = storage->device();
  impl->data = begin;
  impl->storage = std::move(storage);
  return Tensor(std::move(impl));
}

Tensor with_memory(IntrusivePtr<TensorImpl> impl, IntrusivePtr<Storage> storage) noexcept {
  std::byte* begin = storage->data();
  return with_memory(std::move(impl), std::move(storage), begin);
}

Tensor make_view(IntrusivePtr<Storage> storage, std::byte* begin, const Dims& sizes,
                 const Dims& strides, DType dtype) {
  return with_memory(make_impl(sizes, strides, dtype), std::move(storage), begin);
}

Tensor allocate_tensor(const Dims& sizes, DType dtype, MemoryFormat format, Device device) {
  const std::int64_t numel = checked_numel(sizes);
  IntrusivePtr<Storage> storage(new Storage(storage_bytes(dtype, numel), device));
  return with_memory(make_impl(sizes, contiguous_strides(sizes, format), dtype),
                     std::move(storage));
}

// The elements that strides can reach, counted from the first: 0 for none.
std::int64_t reach(const Dims& sizes, const Dims& strides, std::string_view op) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    QUANTA_CHECK(strides[d] >= 0, "{}: strides: expected numbers >= 0, got {}", op, strides);
    if (sizes[d] == 0) return 0;
    const std::int64_t steps = sizes[d] - 1;
    QUANTA_CHECK(
        steps == 0 || strides[d] <= (std::numeric_limits<std::int64_t>::max() / 16 - last) / steps,
        "{}: strides: expected elements within 2^59, got sizes {} and strides {}", op, sizes,
        strides);
    last += steps * strides[d];
  }
  return last + 1;
}

// The bytes of the user's memory that a tensor reaches, after the checks of from_blob.
std::size_t blob_bytes(const void* data, const Dims& sizes, const Dims& strides, DType dtype) {
  QUANTA_CHECK(
      !quanta::is_quantized(dtype),
      "Tensor::from_blob: dtype: expected a plain dtype (use QTensor::from_int_repr), got {}",
      dtype);
  QUANTA_CHECK(sizes.size() == strides.size(),
               "Tensor::from_blob: strides: expected {} numbers, got {}", sizes.size(),
               strides.size());
  QUANTA_CHECK(data != nullptr || checked_numel(sizes) == 0,
               "Tensor::from_blob: data: expected a pointer for sizes {}, got null", sizes);
  checked_numel(sizes);
  return storage_bytes(dtype, reach(sizes, strides, "Tensor::from_blob"));
}

}  // namespace

Dims contiguous_strides(const Dims& sizes, MemoryFormat format) {
  Dims strides;
  const std::size_t rank = sizes.size();
  strides.resize(rank, 1);
  std::int64_t stride = 1;
  const auto place = [&](std::size_t d) {
    strides[d] = stride;
    // Sizes that no tensor can have are refused by checked_numel: until then they wrap.
    stride =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(stride) *
                                  static_cast<std::uint64_t>(std::max<std::int64_t>(sizes[d], 1)));
  };
  if (format == MemoryFormat::ChannelsLast) {
    QUANTA_CHECK(
        rank >= 3 && rank <= 5,
        "Tensor: format: expected a tensor of 3, 4 or 5 dimensions for ChannelsLast, got {}",
        sizes);
    place(1);
    for (std::size_t d = rank - 1; d >= 2; --d) place(d);
    place(0);
  } else {
    for (std::size_t d = rank; d-- > 0;) place(d);
  }
  return strides;
}

std::int64_t wrap_dim(std::int64_t dim, std::int64_t rank, std::string_view op,
                      std::string_view argument) {
  const std::int64_t range = std::max<std::int64_t>(rank, 1);
  QUANTA_CHECK(dim >= -range && dim < range, "{}: {}: expected {}..{}, got {}", op, argument,
               -range, range - 1, dim);
  return dim < 0 ? dim + range : dim;
}

Dims broadcast_sizes(const Dims& lhs, const Dims& rhs, std::string_view op) {
  Dims result;
  const std::size_t rank = std::max(lhs.size(), rhs.size());
  result.resize(rank, 1);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t a = i < lhs.size() ? lhs[lhs.size() - 1 - i] : 1;
    const std::int64_t b = i < rhs.size() ? rhs[rhs.size() - 1 - i] : 1;
    QUANTA_CHECK(a == b || a == 1 || b == 1,
                 "{}: sizes: expected shapes that broadcast, got {} and {}", op, lhs, rhs);
    result[rank - 1 - i] = a == 1 ? b : a;
  }
  return result;
}

Tensor Tensor::empty(const Dims& sizes, DType dtype, MemoryFormat format, Device device) {
  QUANTA_CHECK(!quanta::is_quantized(dtype),
               "Tensor::empty: dtype: expected a plain dtype (use QTensor::empty), got {}", dtype);
  return allocate_tensor(sizes, dtype, format, device);
}

Tensor Tensor::zeros(const Dims& sizes, DType dtype) {
  // Large ones come from the system as zeros: most of their memory may never be touched.
  constexpr std::size_t kMinBytes = std::size_t{1} << 20;
  const std::size_t bytes = storage_bytes(dtype, checked_numel(sizes));
  if (bytes >= kMinBytes && !quanta::is_quantized(dtype)) {
    const auto give_back = [bytes](void* data) { deallocate(data, bytes); };
    std::unique_ptr<void, decltype(give_back)> memory(allocate_zeros(bytes), give_back);
    Tensor result = from_blob(memory.get(), sizes, dtype, give_back);
    static_cast<void>(memory.release());  // now the tensor's
    return constant(std::move(result));
  }
  Tensor result = empty(sizes, dtype);
  std::memset(result.data_ptr(), 0, result.nbytes());
  return constant(std::move(result));
}

Tensor Tensor::ones(const Dims& sizes, DType dtype) { return full(sizes, 1.0, dtype); }

Tensor Tensor::full(const Dims& sizes, double value, DType dtype) {
  Tensor result = empty(sizes, dtype);
  result.fill_(value);
  return constant(std::move(result));
}

Tensor Tensor::arange(std::int64_t count, DType dtype) {
  Tensor result = empty({count}, dtype);
  detail::visit_plain(dtype, "arange", [&](auto element) {
    using Element = decltype(element);
    auto* data = static_cast<typename Element::Storage*>(result.data_ptr());
    for (std::int64_t i = 0; i < count; ++i) data[i] = Element::from_double(static_cast<double>(i));
  });
  return constant(std::move(result));
}

Tensor Tensor::from_values(std::span<const float> values, const Dims& sizes) {
  QUANTA_CHECK(checked_numel(sizes) == static_cast<std::int64_t>(values.size()),
               "Tensor::from_values: values: expected {} for sizes {}, got {}", product(sizes),
               sizes, values.size());
  Tensor result = empty(sizes);
  std::copy(values.begin(), values.end(), result.mutable_data<float>());
  return constant(std::move(result));
}

Tensor Tensor::from_int64(std::span<const std::int64_t> values) {
  Tensor result = empty({static_cast<std::int64_t>(values.size())}, DType::Int64);
  std::copy(values.begin(), values.end(), result.mutable_data<std::int64_t>());
  return constant(std::move(result));
}

Tensor Tensor::scalar(double value, DType dtype) { return full({}, value, dtype); }

Tensor Tensor::from_blob(void* data, const Dims& sizes, DType dtype,
                         std::function<void(void*)> deleter) {
  checked_numel(sizes);
  return from_blob(data, sizes, contiguous_strides(sizes), dtype, std::move(deleter));
}

Tensor Tensor::from_blob(void* data, const Dims& sizes, const Dims& strides, DType dtype,
                         std::function<void(void*)> deleter) {
  const auto bytes = blob_bytes(data, sizes, strides, dtype);
  // The memory last: as long as something may throw, it is the caller's.
  IntrusivePtr<TensorImpl> impl = make_impl(sizes, strides, dtype);
  return with_memory(std::move(impl), IntrusivePtr<Storage>(new Storage(data, bytes, Device::cpu(),
                                                                        std::move(deleter))));
}

Tensor Tensor::from_blob(const void* data, const Dims& sizes, DType dtype,
                         std::function<void(const void*)> deleter) {
  checked_numel(sizes);
  return from_blob(data, sizes, contiguous_strides(sizes), dtype, std::move(deleter));
}

Tensor Tensor::from_blob(const void* data, const Dims& sizes, const Dims& strides, DType dtype,
                         std::function<void(const void*)> deleter) {
  const auto bytes = blob_bytes(data, sizes, strides, dtype);
  IntrusivePtr<TensorImpl> impl = make_impl(sizes, strides, dtype);
  return with_memory(std::move(impl), IntrusivePtr<Storage>(new Storage(data, bytes, Device::cpu(),
                                                                        std::move(deleter))));
}

Tensor Tensor::copy_of(const void* values, std::size_t count, const Dims& sizes, DType dtype) {
  QUANTA_CHECK(checked_numel(sizes) == static_cast<std::int64_t>(count),
               "Tensor::from_span: values: expected {} for sizes {}, got {}", product(sizes), sizes,
               count);
  Tensor result = empty(sizes, dtype);
  if (count > 0) std::memcpy(result.data_ptr(), values, result.nbytes());
  return constant(std::move(result));
}

void Tensor::require_contiguous(std::string_view op) const {
  QUANTA_CHECK(is_contiguous(),
               "{}: x: expected a contiguous tensor (contiguous() makes one), got sizes {} and "
               "strides {}",
               op, sizes(), strides());
}

std::int64_t Tensor::size(std::int64_t d) const {
  detail::require_tensor("size", *this);
  QUANTA_CHECK(dim() > 0, "Tensor::size: dim: expected a tensor with dimensions, got a 0-d one");
  return impl_->sizes[static_cast<std::size_t>(wrap_dim(d, dim(), "Tensor::size"))];
}

std::int64_t Tensor::storage_offset() const noexcept {
  const auto bytes = impl_->data - impl_->storage->data();
  return bytes * 8 / item_bits(impl_->dtype);
}

bool Tensor::is_contiguous(MemoryFormat format) const noexcept {
  const Dims& sizes = impl_->sizes;
  const std::size_t rank = sizes.size();
  if (format == MemoryFormat::ChannelsLast && (rank < 3 || rank > 5)) return false;
  if (impl_->numel == 0) return true;
  std::int64_t expected = 1;
  const auto fits = [&](std::size_t d) {
    if (sizes[d] != 1) {
      if (impl_->strides[d] != expected) return false;
      expected *= sizes[d];
    }
    return true;
  };
  if (format == MemoryFormat::ChannelsLast) {
    if (!fits(1)) return false;
    for (std::size_t d = rank - 1; d >= 2; --d) {
      if (!fits(d)) return false;
    }
    return fits(0);
  }
  for (std::size_t d = rank; d-- > 0;) {
    if (!fits(d)) return false;
  }
  return true;
}

bool Tensor::is_dense() const noexcept {
  if (impl_->numel == 0) return true;
  std::int64_t expected = 1;
  for (const std::int64_t d : detail::dims_by_stride(impl_->sizes, impl_->strides)) {
    if (impl_->strides[static_cast<std::size_t>(d)] != expected) return false;
    expected *= impl_->sizes[static_cast<std::size_t>(d)];
  }
  return true;
}

MemoryFormat Tensor::suggested_format() const noexcept {
  // torch's operations on codes know no channels-last order of fewer than two spatial dimensions.
  if (is_quantized() && dim() < 4) return MemoryFormat::Contiguous;
  return !is_contiguous() && is_contiguous(MemoryFormat::ChannelsLast) ? MemoryFormat::ChannelsLast
                                                                       : MemoryFormat::Contiguous;
}

namespace {

/// The C++ type of a dtype's elements, or of the bytes or codes that stand for them.
struct ElementType {
  char kind;
  std::size_t bytes;
  const char* name;
};

ElementType element_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::Float32:
      return {'f', 4, "float"};
    case DType::Float64:
      return {'f', 8, "double"};
    case DType::Float16:
    case DType::BFloat16:
    case DType::UInt16:
      return {'u', 2, "std::uint16_t"};
    case DType::Int16:
      return {'i', 2, "std::int16_t"};
    case DType::Int32:
    case DType::QInt32:
      return {'i', 4, "std::int32_t"};
    case DType::Int64:
      return {'i', 8, "std::int64_t"};
    case DType::Int8:
    case DType::QInt8:
      return {'i', 1, "std::int8_t"};
    case DType::Bool:
      return {'b', sizeof(bool), "bool"};
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
    case DType::UInt8:
    case DType::QUInt8:
    case DType::QUInt4x2:
    case DType::QUInt2x4:
      return {'u', 1, "std::uint8_t"};
  }
  return {'?', 0, "std::byte"};
}

}  // namespace

bool Tensor::matches_type(ElementKind wanted) const noexcept {
  const ElementType type = element_type(impl_->dtype);
  return wanted.kind == type.kind && wanted.bytes == type.bytes;
}

void Tensor::throw_type_mismatch(ElementKind wanted) const {
  std::string type = "bool";
  if (wanted.kind == 'f') type = wanted.bytes == 4 ? "float" : "double";
  if (wanted.kind == 'i') type = fmt::format("std::int{}_t", 8 * wanted.bytes);
  if (wanted.kind == 'u') type = fmt::format("std::uint{}_t", 8 * wanted.bytes);
  throw ArgumentError(
      fmt::format("Tensor::data: dtype: expected a tensor whose elements are {0}, got {1}: ask a "
                  "{1} tensor for "
                  "data<{2}>(), or convert it with to(DType)",
                  type, impl_->dtype, element_type(impl_->dtype).name));
}

void Tensor::throw_not_on_host() const {
  const Operation* const op = detail::running_operation;
  throw UnsupportedError(with_module_path(
      fmt::format("{}: x: expected a tensor on cpu, got {} {} on {}: copy it with cpu()",
                  op == nullptr ? "Tensor::data" : op->name(), impl_->dtype, impl_->sizes,
                  to_string(impl_->device))));
}

double Tensor::item() const {
  detail::require_tensor("item", *this);
  replay::check_read("item", *this);
  QUANTA_CHECK(numel() == 1, "Tensor::item: expected one element, got {}", sizes());
  if (!device().is_cpu()) return cpu().item();
  if (dtype() == DType::Float64) return *data<double>();
  if (dtype() == DType::Int64) return static_cast<double>(*data<std::int64_t>());
  return to_float_vector()[0];
}

Tensor Tensor::contiguous(MemoryFormat format) const {
  detail::require_tensor("contiguous", *this);
  QUANTA_CHECK(format != MemoryFormat::Preserve,
               "contiguous: format: expected Contiguous or ChannelsLast, got Preserve");
  return is_contiguous(format) ? *this : clone(format);
}

Tensor Tensor::as_strided(const Dims& sizes, const Dims& strides, std::int64_t offset) const {
  detail::require_tensor("as_strided", *this);
  QUANTA_CHECK(!is_quantized() || !is_per_channel(impl_->quantizer.scheme),
               "as_strided: x: expected a plain or per-tensor quantized tensor, got {}",
               impl_->quantizer.scheme);
  QUANTA_CHECK(!is_sub_byte(dtype()), "as_strided: x: expected whole-byte elements, got {}",
               dtype());
  QUANTA_CHECK(sizes.size() == strides.size(), "as_strided: strides: expected {} numbers, got {}",
               sizes.size(), strides.size());
  QUANTA_CHECK(offset >= 0, "as_strided: storage_offset: expected >= 0, got {}", offset);
  checked_numel(sizes);
  const std::int64_t last = reach(sizes, strides, "as_strided");
  const auto available = static_cast<std::int64_t>(storage()->bytes() / item_size(dtype()));
  QUANTA_CHECK(last == 0 || (offset <= available && last <= available - offset),
               "as_strided: sizes: expected elements within the storage of {}, got sizes {}, "
               "strides {}, offset {}",
               available, sizes, strides, offset);
  Tensor result =
      make_view(storage(),
                storage()->data() +
                    static_cast<std::size_t>(std::min(offset, available)) * item_size(dtype()),
                sizes, strides, dtype());
  result.impl_->quantizer = impl_->quantizer;
  return result;
}

Tensor Tensor::bit_cast(DType dtype) const {
  detail::require_tensor("bit_cast", *this);
  QUANTA_CHECK(!is_quantized() && !quanta::is_quantized(dtype) &&
                   item_bits(dtype) == item_bits(this->dtype()),
               "bit_cast: dtype: expected a plain dtype as wide as {}, got {}", this->dtype(),
               dtype);
  if (dtype == DType::Bool && this->dtype() != DType::Bool) return bit_cast(DType::UInt8).to(dtype);
  return make_view(storage(), impl_->data, sizes(), strides(), dtype);
}

}  // namespace quanta
