#include "calls.h"

namespace quanta::conform {

Outputs outputs_of(const ValuesIndices& result) {
  Outputs outputs;
  outputs.set("values", result.values);
  outputs.set("indices", result.indices);
  return outputs;
}

Outputs outputs_of(const std::vector<Tensor>& results) {
  Outputs outputs;
  for (std::size_t i = 0; i < results.size(); ++i) {
    outputs.set("out" + std::to_string(i), results[i]);
  }
  return outputs;
}

Runner if_given(const char* attribute, Runner with, Runner without) {
  return [=](const Case& test) { return test.has_attr(attribute) ? with(test) : without(test); };
}

}  // namespace quanta::conform
