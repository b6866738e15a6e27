#include "quanta/runtime/catalogue.h"

#include <algorithm>
#include <cmath>

#include "quanta/runtime/check.h"
#include "quanta/runtime/random.h"

namespace quanta {

bool OperationEntry::takes(DType dtype) const noexcept {
  return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
}

bool OperationEntry::takes_on_cuda(DType dtype) const {
  const auto has_kernel = [](const Operation& operation, DType given) {
    const std::span<const DType> on_cuda = operation.cuda_dtypes();
    return std::find(on_cuda.begin(), on_cuda.end(), given) != on_cuda.end();
  };
  if (takes(dtype)) {
    const Sample call = sample(dtype);
    return has_kernel(*call.operation, call.inputs.front().dtype());
  }
  // Floats of 16 bits that the CPU has no kernel for.
  const bool is_narrow = dtype == DType::Float16 || dtype == DType::BFloat16;
  return is_narrow && takes(DType::Float32) && has_kernel(*make(), dtype);
}

void Catalogue::add(const OperationInfo& info, SampleFunction sample) {
  QUANTA_CHECK(find(info.name) == nullptr, "catalogue: name: expected a new one, got {} again",
               info.name);
  QUANTA_CHECK(!info.name.empty() && !info.dtypes.empty() && sample != nullptr,
               "catalogue: {}: expected a name, dtypes and a sample call", info.name);
  entries_.emplace_back(info, sample);
}

const OperationEntry* Catalogue::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find_if(
      entries_, [&](const OperationEntry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

Tensor sample_tensor(const Dims& sizes, DType dtype, std::uint64_t seed) {
  Generator generator(seed);
  const Tensor floats = randn(sizes, generator);
  if (is_floating_point(dtype)) return floats.to(dtype);
  if (is_quantized(dtype)) {
    const bool narrow = is_sub_byte(dtype);
    const std::int64_t middle = narrow ? 1 : (dtype == DType::QUInt8 ? 120 : 3);
    QTensor codes = QTensor::empty(sizes, narrow ? 0.5 : 0.05, middle, dtype);
    codes.copy_(floats);
    return codes;
  }
  // 0..5: indices, counts and codes that every operation takes.
  Tensor numbers = Tensor::empty(sizes);
  const float* from = floats.data<float>();
  float* to = numbers.mutable_data<float>();
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    to[i] = std::min(5.0F, std::floor(std::fabs(from[i]) * 2.0F));
  }
  return numbers.to(dtype);
}

}  // namespace quanta
