#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "quanta/runtime/device.h"
#include "quanta/runtime/dtype.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/tensor.h"

/// The list of all operations. supports(), docs/coverage.md, the benchmarks and the tests that
/// every operation must pass walk it; files make operations by name out of it.
namespace quanta {

/// A call that shows an operation at work.
struct Sample {
  std::shared_ptr<const Operation> operation;
  std::vector<Tensor> inputs;
};

/// A sample call of an operation that is given by value.
template <typename Kind>
Sample sample_call(Kind operation, std::vector<Tensor> inputs) {
  return {std::make_shared<const Kind>(std::move(operation)), std::move(inputs)};
}

/// A sample call whose first argument has this dtype; small, the same each time.
using SampleFunction = Sample (*)(DType dtype);

/// Where an operation belongs and what it takes.
struct OperationInfo {
  std::string_view name;          ///< Operation::name() of its sample calls
  std::string_view header;        ///< "quanta/ops/activation.h": where its function is declared
  std::span<const DType> dtypes;  ///< what its first tensor may be; lives as long as the process
};

/// A row of the catalogue. An operation without a sample call does not compile.
struct OperationEntry : OperationInfo {
  OperationEntry(const OperationInfo& info, SampleFunction sample_function)
      : OperationInfo(info), sample(sample_function) {}

  SampleFunction sample;

  bool takes(DType dtype) const noexcept;
  /// Whether a CUDA device can run it on a first tensor of this dtype.
  bool takes_on_cuda(DType dtype) const;
  /// An operation of this kind with the settings of the sample, to be changed by set_attribute.
  std::shared_ptr<Operation> make() const { return sample(dtypes.front()).operation->clone(); }
};

/// Rows keep their addresses. Adding is for the start of a program and for one thread at a time;
/// reading is safe from many threads.
class Catalogue {
 public:
  /// Throws ArgumentError for a name that is taken, or without dtypes.
  void add(const OperationInfo& info, SampleFunction sample);
  /// Null for an unknown name.
  const OperationEntry* find(std::string_view name) const noexcept;
  const std::deque<OperationEntry>& entries() const noexcept { return entries_; }

 private:
  std::deque<OperationEntry> entries_;
};

/// Numbers for sample calls, the same each time: normally distributed floats, integers 0..5, truth
/// values, codes of scale 0.05 (QUInt8 about 120, QInt8 and QInt32 about 3; sub-byte kinds of scale
/// 0.5), of any dtype.
Tensor sample_tensor(const Dims& sizes, DType dtype = DType::Float32, std::uint64_t seed = 1);

}  // namespace quanta
