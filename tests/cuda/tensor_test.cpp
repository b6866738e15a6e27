#include "quanta/runtime/tensor.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/embedding.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/support.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/error.h"
#include "support/test_device.h"

namespace quanta {
namespace {

const Device kDevice = test::test_device();

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("cuda tensor: there and back, for every dtype and order") {
  for (const DType dtype :
       {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16, DType::Float8E4M3FN,
        DType::Float8E5M2, DType::UInt8, DType::Int8, DType::Int16, DType::UInt16, DType::Int32,
        DType::Int64, DType::Bool, DType::QUInt8, DType::QInt8, DType::QInt32, DType::QUInt4x2,
        DType::QUInt2x4}) {
    CAPTURE(to_string(dtype));
    const Tensor x = sample_tensor({2, 3, 5, 4}, dtype);
    const Tensor there = x.to(kDevice);
    CHECK(there.device() == kDevice);
    CHECK(there.strides() == x.strides());
    CHECK(there.cpu().equal(x));
    if (is_sub_byte(dtype)) continue;
    const Tensor last = x.contiguous(MemoryFormat::ChannelsLast);
    CHECK(last.to(kDevice).cpu().strides() == last.strides());
    CHECK(last.to(kDevice).cpu().equal(x));
    // Gaps are closed on the way; views are made on either side.
    CHECK(x.slice(3, 0, 4, 2).to(kDevice).cpu().equal(x.slice(3, 0, 4, 2)));
    CHECK(there.slice(3, 1, 4, 2).cpu().equal(x.slice(3, 1, 4, 2)));
    CHECK(there.permute({3, 1, 0, 2})
              .clone(MemoryFormat::Contiguous)
              .cpu()
              .equal(x.permute({3, 1, 0, 2})));
    CHECK(there.contiguous(MemoryFormat::ChannelsLast).cpu().equal(x));
  }
}

TEST_CASE("cuda tensor: conversions are the CPU's") {
  const std::vector<DType> plain{
      DType::Float32,    DType::Float64, DType::Float16, DType::BFloat16, DType::Float8E4M3FN,
      DType::Float8E5M2, DType::UInt8,   DType::Int8,    DType::Int16,    DType::UInt16,
      DType::Int32,      DType::Int64,   DType::Bool};
  for (const DType from : plain) {
    for (const DType to : plain) {
      CAPTURE(to_string(from));
      CAPTURE(to_string(to));
      const Tensor x = sample_tensor({3, 37}, from);
      CHECK(x.to(kDevice).to(to).cpu().equal(x.to(to)));
      const Tensor columns = x.slice(1, 3, 37, 4);
      CHECK(columns.to(to).equal(x.to(kDevice).slice(1, 3, 37, 4).to(to).cpu()));
    }
  }
}

TEST_CASE("cuda tensor: conversions keep all bits that they can") {
  const Tensor wide =
      Tensor::from_int64(std::vector<std::int64_t>{0, 40000, 65535, 16777217, 2147483647});
  for (const DType dtype : {DType::Int32, DType::Int64, DType::UInt16, DType::Float64}) {
    CAPTURE(to_string(dtype));
    const Tensor x = wide.narrow(0, 0, dtype == DType::UInt16 ? 3 : 5);
    CHECK(x.to(kDevice).to(dtype).cpu().equal(x.to(dtype)));
    CHECK(x.to(dtype).to(kDevice).to(DType::Int64).cpu().equal(x));
  }
}

TEST_CASE("cuda tensor: copy_ and fill_") {
  const Tensor x = sample_tensor({3, 5});
  const Tensor there = Tensor::empty({3, 5}, DType::Float32, MemoryFormat::Contiguous, kDevice);
  there.copy_(x);
  CHECK(there.cpu().equal(x));
  there.narrow(0, 1, 1).fill_(2.5);
  x.narrow(0, 1, 1).fill_(2.5);
  CHECK(there.cpu().equal(x));
  there.narrow(1, 2, 2).fill_(-7.5);  // with gaps
  x.narrow(1, 2, 2).fill_(-7.5);
  CHECK(there.cpu().equal(x));
  const Tensor back = Tensor::zeros({3, 5});
  back.copy_(there);
  CHECK(back.equal(x));
  const Tensor row = sample_tensor({5}, DType::Float32, 7);
  there.copy_(row.to(kDevice));
  CHECK(there.cpu().equal(row.expand({3, 5})));
  CHECK(there.select(0, 0).select(0, 2).item() == doctest::Approx(row.select(0, 2).item()));
  CHECK(to_string(there) == to_string(there.cpu()));
}

TEST_CASE("cuda tensor: host code that asks for elements is told who and where") {
  const Tensor x = sample_tensor({3, 5}).to(kDevice);
  CHECK(contains(
      error_of([&] { x.data<float>(); }),
      "Tensor::data: x: expected a tensor on cpu, got Float32 [3, 5] on " + to_string(kDevice)));
  CHECK(contains(error_of([&] { x.mutable_data<float>(); }), "copy it with cpu()"));
  CHECK(contains(error_of([&] { x.data_ptr(); }), to_string(kDevice)));
  CHECK(contains(error_of([&] { add(x, x.cpu()); }),
                 "expected all on one device, got " + to_string(kDevice) + " and cpu"));
  const Tensor other = sample_tensor({4}, DType::QUInt8).to(kDevice);
  CHECK_FALSE(supports("det", kDevice, DType::QUInt8));
  CHECK(supports("quantize_per_tensor", kDevice, DType::Float32));
  CHECK(other.cpu().is_quantized());
}

TEST_CASE("cuda tensor: gradients come back") {
  const Tensor x = sample_tensor({4});
  x.set_requires_grad();
  const Tensor y = x.to(kDevice).cpu();
  CHECK(y.requires_grad());
  y.backward(Tensor::ones({4}));
  CHECK(x.grad().equal(Tensor::ones({4})));
}

}  // namespace quanta
