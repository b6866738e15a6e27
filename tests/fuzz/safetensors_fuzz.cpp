#include "quanta/runtime/safetensors.h"

#include "quanta/runtime/detail/safetensors_index.h"
#include "safetensors_change.h"
#include "support.h"

// Any bytes either parse or throw FileError; whatever parsed can be read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = quanta::fuzz::as_bytes(data, size);
  try {
    for (const auto& [name, tensor] : quanta::parse_safetensors(bytes, "fuzz").tensors) {
      tensor.to_float_vector();
    }
  } catch (const quanta::FileError&) {
  }
  if (!quanta::detail::is_safetensors_index(bytes)) return 0;
  try {
    quanta::detail::parse_safetensors_index(bytes, "fuzz");
  } catch (const quanta::FileError&) {
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  quanta::fuzz::Random random(seed);
  const std::string_view file = quanta::fuzz::as_text(data, size);
  return quanta::fuzz::put_back(file.starts_with('{')
                                    ? quanta::fuzz::changed_json_text(file, max_size, random)
                                    : quanta::fuzz::changed_safetensors(file, max_size, random),
                                data, size, max_size);
}
