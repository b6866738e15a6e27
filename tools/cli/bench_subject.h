#pragma once

#include <memory>
#include <vector>

#include "bench.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cli {

/// A network that is ready to run, with the inputs to run it on.
class BenchSubject {
 public:
  BenchSubject() = default;
  virtual ~BenchSubject() = default;
  BenchSubject(const BenchSubject&) = delete;
  BenchSubject& operator=(const BenchSubject&) = delete;

  /// The inputs of one request: a batch of its own.
  virtual std::vector<Tensor> request() const = 0;
  /// Answers a request. From any number of threads at once.
  virtual void run(const std::vector<Tensor>& request) const = 0;
  /// The outputs for as many inputs as whole batches hold.
  virtual Tensor outputs() const = 0;

  /// The float outputs of the input file; undefined when it has none.
  const Tensor& expected() const { return expected_; }
  /// Of one run; 0 when nobody knows.
  double operations() const { return operations_; }
  double file_megabytes() const { return file_bytes_ / 1e6; }

 protected:
  Tensor expected_;
  double operations_ = 0.0;
  double file_bytes_ = 0.0;
};

/// One of the benchmark networks, or the network of an ONNX file (options.onnx). Throws ArgumentError
/// for options that do not go together and what reading throws.
std::unique_ptr<const BenchSubject> make_bench_subject(const BenchOptions& options);

}  // namespace quanta::cli
