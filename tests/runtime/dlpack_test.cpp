#include "quanta/runtime/dlpack.h"

#include <array>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"

// The structures as dlpack.h (version 0.6) writes them: what another library would see.
extern "C" {
struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};
struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
}

namespace quanta {
namespace {

// Another library's tensor: Float32 [2, 3] over six numbers.
struct Foreign {
  std::array<float, 6> memory{0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F};
  std::array<std::int64_t, 12> shape{2, 3};
  std::array<std::int64_t, 12> strides{3, 1};
  int deleted = 0;
  DLManagedTensor managed{};

  Foreign() {
    managed.dl_tensor = {memory.data(), {1, 0}, 2, {2, 32, 1}, shape.data(), strides.data(), 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->deleted;
    };
  }
};

// Refused with an E, and still the caller's.
template <typename E, typename Change>
void check_refused(Change change) {
  Foreign foreign;
  change(foreign);
  CHECK_THROWS_AS(from_dlpack(&foreign.managed), E);
  CHECK(foreign.deleted == 0);
}

}  // namespace

TEST_CASE("a foreign tensor is used without a copy and deleted once") {
  Foreign foreign;
  {
    const Tensor x = from_dlpack(&foreign.managed);
    CHECK(x.dtype() == DType::Float32);
    CHECK(x.sizes() == Dims{2, 3});
    CHECK(x.data<float>() == foreign.memory.data());
    Tensor view = x[1];
    CHECK(view.to_float_vector() == std::vector<float>{3.0F, 4.0F, 5.0F});
    view.fill_(7.0);
    CHECK(foreign.memory[5] == 7.0F);
    foreign.memory[0] = 9.0F;
    CHECK(x.to_float_vector()[0] == 9.0F);
    CHECK(foreign.deleted == 0);
  }
  CHECK(foreign.deleted == 1);
}

TEST_CASE("strides, offsets and missing fields of a foreign tensor") {
  Foreign columns;
  columns.strides = {1, 2};
  CHECK(from_dlpack(&columns.managed).to_float_vector() ==
        std::vector<float>{0.0F, 2.0F, 4.0F, 1.0F, 3.0F, 5.0F});

  Foreign compact;
  compact.managed.dl_tensor.strides = nullptr;
  CHECK(from_dlpack(&compact.managed).strides() == Dims{3, 1});

  Foreign part;
  part.shape = {2};
  part.strides = {1};
  part.managed.dl_tensor.ndim = 1;
  part.managed.dl_tensor.byte_offset = 8;
  part.managed.deleter = nullptr;
  CHECK(from_dlpack(&part.managed).to_float_vector() == std::vector<float>{2.0F, 3.0F});

  Foreign scalar;
  scalar.managed.dl_tensor.ndim = 0;
  scalar.managed.dl_tensor.shape = nullptr;
  scalar.managed.dl_tensor.strides = nullptr;
  CHECK(from_dlpack(&scalar.managed).item() == 0.0);

  Foreign empty;
  empty.shape = {0, 3};
  empty.managed.dl_tensor.data = nullptr;
  CHECK(from_dlpack(&empty.managed).numel() == 0);
  CHECK(empty.deleted == 1);
}

TEST_CASE("a foreign tensor that cannot be held is refused") {
  CHECK_THROWS_AS(from_dlpack(nullptr), ArgumentError);
  using F = Foreign&;
  check_refused<UnsupportedError>([](F f) { f.managed.dl_tensor.device.device_type = 2; });
  check_refused<UnsupportedError>([](F f) { f.managed.dl_tensor.dtype.lanes = 4; });
  check_refused<UnsupportedError>([](F f) { f.managed.dl_tensor.dtype.lanes = 0; });
  check_refused<UnsupportedError>([](F f) { f.managed.dl_tensor.dtype = {5, 64, 1}; });  // complex
  check_refused<UnsupportedError>([](F f) { f.managed.dl_tensor.dtype = {1, 32, 1}; });
  check_refused<UnsupportedError>([](F f) { f.managed.dl_tensor.dtype = {0, 4, 1}; });
  check_refused<UnsupportedError>([](F f) { f.managed.dl_tensor.dtype = {200, 8, 1}; });
  check_refused<ArgumentError>([](F f) { f.managed.dl_tensor.ndim = -1; });
  check_refused<ArgumentError>([](F f) { f.managed.dl_tensor.ndim = 11; });
  check_refused<ArgumentError>([](F f) { f.managed.dl_tensor.shape = nullptr; });
  check_refused<ArgumentError>([](F f) { f.shape = {2, -3}; });
  check_refused<ArgumentError>([](F f) {
    f.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  });
  check_refused<ArgumentError>([](F f) { f.strides = {-3, 1}; });
  check_refused<ArgumentError>([](F f) { f.strides = {INT64_MAX, INT64_MAX}; });
  check_refused<ArgumentError>([](F f) { f.managed.dl_tensor.data = nullptr; });
  check_refused<ArgumentError>([](F f) { f.managed.dl_tensor.byte_offset = 2; });
  check_refused<ArgumentError>([](F f) { f.managed.dl_tensor.byte_offset = UINT64_MAX; });
}

TEST_CASE("a tensor is given away without a copy") {
  DLManagedTensor* managed = nullptr;
  const float* memory = nullptr;
  {
    const Tensor x = Tensor::arange(12).view({3, 4}).slice(1, 1, 3);
    memory = x.data<float>();
    managed = to_dlpack(x);
  }
  const DLTensor& seen = managed->dl_tensor;
  CHECK(static_cast<char*>(seen.data) + seen.byte_offset == reinterpret_cast<const char*>(memory));
  CHECK(seen.device.device_type == 1);
  CHECK(seen.device.device_id == 0);
  REQUIRE(seen.ndim == 2);
  CHECK(seen.shape[0] == 3);
  CHECK(seen.shape[1] == 2);
  CHECK(seen.strides[0] == 4);
  CHECK(seen.strides[1] == 1);
  CHECK(seen.dtype.code == 2);
  CHECK(seen.dtype.bits == 32);
  CHECK(seen.dtype.lanes == 1);
  // The tensor that it came from is gone, its memory is not.
  CHECK(memory[0] == 1.0F);
  CHECK(memory[5] == 6.0F);
  managed->deleter(managed);
}

TEST_CASE("every plain dtype goes there and back") {
  struct Row {
    DType dtype;
    std::uint8_t code;
    std::uint8_t bits;
  };
  for (const Row& row : {Row{DType::Float32, 2, 32},
                         {DType::Float64, 2, 64},
                         {DType::Float16, 2, 16},
                         {DType::BFloat16, 4, 16},
                         {DType::Float8E4M3FN, 10, 8},
                         {DType::Float8E5M2, 12, 8},
                         {DType::UInt8, 1, 8},
                         {DType::UInt16, 1, 16},
                         {DType::Int8, 0, 8},
                         {DType::Int16, 0, 16},
                         {DType::Int32, 0, 32},
                         {DType::Int64, 0, 64},
                         {DType::Bool, 6, 8}}) {
    CAPTURE(row.dtype);
    Tensor x = Tensor::ones({2, 3}, row.dtype);
    const Tensor copy = x.clone();
    const void* memory = x.data_ptr();
    DLManagedTensor* managed = to_dlpack(x.t());
    x = Tensor();
    CHECK(managed->dl_tensor.dtype.code == row.code);
    CHECK(managed->dl_tensor.dtype.bits == row.bits);
    const Tensor back = from_dlpack(managed);
    CHECK(back.data_ptr() == memory);
    CHECK(back.strides() == Dims{1, 3});
    CHECK(back.t().equal(copy));
  }
}

TEST_CASE("what another library cannot hold is not given away") {
  CHECK_THROWS_AS(to_dlpack(Tensor()), ArgumentError);
  CHECK_THROWS_AS(to_dlpack(QTensor::empty({2}, 0.1, 0, DType::QInt8)), UnsupportedError);
  const Tensor parameter = Tensor::ones(3);
  parameter.set_requires_grad();
  CHECK_THROWS_AS(to_dlpack(parameter), ArgumentError);
  const std::array<float, 2> constant{};
  CHECK_THROWS_AS(to_dlpack(Tensor::from_blob(constant.data(), 2, DType::Float32)), ArgumentError);
}

}  // namespace quanta
