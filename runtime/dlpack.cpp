#include "quanta/runtime/dlpack.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

// The layout of dlpack.h, version 0. Names of its own, so that the real header can be included
// beside ours.
struct AbiDevice {
  std::int32_t type;
  std::int32_t id;
};
struct AbiDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct AbiTensor {
  void* data;
  AbiDevice device;
  std::int32_t ndim;
  AbiDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct AbiManagedTensor {
  AbiTensor tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
static_assert(sizeof(void*) != 8 ||
              (offsetof(AbiTensor, device) == 8 && offsetof(AbiTensor, ndim) == 16 &&
               offsetof(AbiTensor, dtype) == 20 && offsetof(AbiTensor, shape) == 24 &&
               offsetof(AbiTensor, strides) == 32 && offsetof(AbiTensor, byte_offset) == 40 &&
               offsetof(AbiManagedTensor, manager_ctx) == 48 &&
               offsetof(AbiManagedTensor, deleter) == 56));

constexpr std::int32_t kCpu = 1;

// DLDataTypeCode.
enum Code : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kBool = 6,
  kFloat8E4M3FN = 10,
  kFloat8E5M2 = 12,
};

std::optional<AbiDataType> abi_dtype(DType dtype) {
  const auto of = [&](Code code) {
    return AbiDataType{code, static_cast<std::uint8_t>(item_bits(dtype)), 1};
  };
  switch (dtype) {
    case DType::Float16:
    case DType::Float32:
    case DType::Float64:
      return of(kFloat);
    case DType::BFloat16:
      return of(kBfloat);
    case DType::Float8E4M3FN:
      return of(kFloat8E4M3FN);
    case DType::Float8E5M2:
      return of(kFloat8E5M2);
    case DType::UInt8:
    case DType::UInt16:
      return of(kUInt);
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
      return of(kInt);
    case DType::Bool:
      return of(kBool);
    default:
      return std::nullopt;
  }
}

// Throws UnsupportedError for a type that no dtype has.
DType dtype_of(const AbiDataType& wanted) {
  QUANTA_SUPPORTED(wanted.lanes == 1,
                   "from_dlpack: dtype: expected elements of one number, got {} lanes",
                   wanted.lanes);
  for (const DType dtype : {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16,
                            DType::Float8E4M3FN, DType::Float8E5M2, DType::UInt8, DType::UInt16,
                            DType::Int8, DType::Int16, DType::Int32, DType::Int64, DType::Bool}) {
    const AbiDataType known = *abi_dtype(dtype);
    if (known.code == wanted.code && known.bits == wanted.bits) return dtype;
  }
  throw UnsupportedError(fmt::format(
      "from_dlpack: dtype: expected floats of 8 to 64 bits, signed integers of 8 to 64, unsigned "
      "ones of 8 or 16, bfloat16 or bool of 8, got type code {} with {} bits",
      wanted.code, wanted.bits));
}

Dims sizes_of(const AbiTensor& tensor) {
  QUANTA_CHECK(tensor.ndim >= 0 && static_cast<std::size_t>(tensor.ndim) <= Dims::kMaxDims,
               "from_dlpack: ndim: expected 0..{}, got {}", Dims::kMaxDims, tensor.ndim);
  QUANTA_CHECK(tensor.ndim == 0 || tensor.shape != nullptr,
               "from_dlpack: shape: expected {} numbers, got null", tensor.ndim);
  Dims sizes;
  for (std::int32_t d = 0; d < tensor.ndim; ++d) sizes.push_back(tensor.shape[d]);
  checked_numel(sizes);
  return sizes;
}

// What a foreign library holds: the tensor itself and the arrays that its description points to.
struct Exported {
  AbiManagedTensor managed;
  Tensor tensor;
  Dims sizes;
  Dims strides;
};

void delete_exported(DLManagedTensor* self) {
  AbiManagedTensor managed;
  std::memcpy(&managed, static_cast<const void*>(self), sizeof(managed));
  delete static_cast<Exported*>(managed.manager_ctx);
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& tensor) {
  QUANTA_CHECK(tensor.defined(), "to_dlpack: tensor: expected a tensor, got an undefined one");
  const std::optional<AbiDataType> dtype = abi_dtype(tensor.dtype());
  QUANTA_SUPPORTED(dtype.has_value(),
                   "to_dlpack: tensor: expected a plain dtype (int_repr_view() gives the codes), "
                   "got {}",
                   tensor.dtype());
  QUANTA_SUPPORTED(tensor.device() == Device::cpu(),
                   "to_dlpack: tensor: expected one on the cpu, got {}",
                   to_string(tensor.device()));
  QUANTA_CHECK(!tensor.requires_grad(),
               "to_dlpack: tensor: expected one that asks for no gradients, whose changes the tape "
               "would not see: use detach()");
  QUANTA_CHECK(!tensor.storage()->is_read_only(),
               "to_dlpack: tensor: expected memory that may be written to, got read-only memory: "
               "use clone()");
  auto exported = std::make_unique<Exported>();
  exported->tensor = tensor.detach();
  exported->sizes = tensor.sizes();
  exported->strides = tensor.strides();
  exported->managed = {{tensor.data_ptr(),
                        {kCpu, 0},
                        static_cast<std::int32_t>(tensor.dim()),
                        *dtype,
                        exported->sizes.begin(),
                        exported->strides.begin(),
                        0},
                       exported.get(),
                       &delete_exported};
  return reinterpret_cast<DLManagedTensor*>(&exported.release()->managed);
}

Tensor from_dlpack(DLManagedTensor* managed) {
  QUANTA_CHECK(managed != nullptr, "from_dlpack: managed: expected a tensor, got null");
  AbiManagedTensor description;
  std::memcpy(&description, static_cast<const void*>(managed), sizeof(description));
  const AbiTensor& tensor = description.tensor;
  QUANTA_SUPPORTED(tensor.device.type == kCpu,
                   "from_dlpack: device: expected the CPU (type {}), got type {}", kCpu,
                   tensor.device.type);
  const DType dtype = dtype_of(tensor.dtype);
  const Dims sizes = sizes_of(tensor);
  Dims strides = contiguous_strides(sizes);
  if (tensor.strides != nullptr) {
    for (std::size_t d = 0; d < sizes.size(); ++d) strides[d] = tensor.strides[d];
  }
  auto* data = static_cast<std::byte*>(tensor.data);
  QUANTA_CHECK(data != nullptr || product(sizes) == 0,
               "from_dlpack: data: expected memory for sizes {}, got null", sizes);
  if (data != nullptr) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    QUANTA_CHECK(tensor.byte_offset <= UINTPTR_MAX - address,
                 "from_dlpack: byte_offset: expected one within memory, got {}",
                 tensor.byte_offset);
    QUANTA_CHECK(product(sizes) == 0 || (address + tensor.byte_offset) % item_size(dtype) == 0,
                 "from_dlpack: data: expected memory that is aligned to the {} bytes of {}, got "
                 "byte_offset {} from an address of remainder {}",
                 item_size(dtype), dtype, tensor.byte_offset, address % item_size(dtype));
    data += tensor.byte_offset;
  }
  const auto deleter = [managed, free = description.deleter](void*) {
    if (free != nullptr) free(managed);
  };
  return Tensor::from_blob(data, sizes, strides, dtype, deleter);
}

}  // namespace quanta
