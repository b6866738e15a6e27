#pragma once

#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"

// Throws nothing but what it says. What takes a const model may run in many threads at once.

namespace quanta {

/// A call within the quantized part of a network that runs in float, with dequantize before it and
/// quantize behind it.
struct FloatIsland {
  std::string path;  ///< of the module in whose forward the call stands
  std::string call;  ///< "exp" for an operation, the path of a module that was left in float
  bool is_module = false;
  bool is_int8 = false;  ///< it has a form on codes (add, mul, cat, softmax): nothing is lost
  std::string to_string() const;  ///< "'block1': exp runs in float between dequantize and quantize"
};

/// Those of a converted model that has run.
std::vector<FloatIsland> float_islands(const nn::Module& converted);

}  // namespace quanta
