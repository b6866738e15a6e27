#pragma once

#include <functional>
#include <memory>
#include <string>

#include "networks.h"
#include "quanta/runtime/device.h"
#include "quanta/runtime/profiler.h"

namespace quanta::cli {

/// One form of a network with inputs, as it runs fastest: frozen, or where that cannot be the modules
/// themselves.
struct SuiteSide {
  std::function<void()> run;
  bool is_frozen = false;
  Device device{};
};

/// A network in float and quantized, made once and timed at several batches.
class SuiteNetwork {
 public:
  SuiteNetwork() = default;
  virtual ~SuiteNetwork() = default;
  SuiteNetwork(const SuiteNetwork&) = delete;
  SuiteNetwork& operator=(const SuiteNetwork&) = delete;

  virtual std::string name() const = 0;
  /// "int8" or "dynamic-int8".
  virtual std::string dtype() const = 0;
  virtual SuiteSide in_float(int batch) const = 0;
  virtual SuiteSide quantized(int batch) const = 0;
  /// Of one input, in float.
  virtual double multiply_adds() const = 0;
  /// Bytes that the ops of the quantized form read and write in a run.
  virtual double moved_bytes(int batch) const = 0;
  /// Of the quantized form.
  virtual double weight_bytes() const = 0;
};

/// A network of random weights. One that is static is calibrated with random inputs. Its quantized
/// form runs on `device`; throws UnsupportedError where that lacks kernels. The float form runs there
/// too if it can, else on the CPU.
std::unique_ptr<const SuiteNetwork> make_suite_network(const NetworkKind& kind, Device device);

/// The network of an ONNX file, to static int8 with random inputs of the sizes "x=1,3,640,640", whose
/// first number makes way for the batch. Throws ArgumentError for a text that is not of this form, and
/// what reading and quantizing throw.
std::unique_ptr<const SuiteNetwork> make_suite_network(const std::string& name,
                                                       const std::string& path,
                                                       const std::string& sizes);

}  // namespace quanta::cli
