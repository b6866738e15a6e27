#include "quanta/nn/data/npy.h"

#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  const fuzz::MemoryFile file(fuzz::as_text(data, size));
  try {
    data::read_npy(file.path()).to_float_vector();
  } catch (const FileError&) {
  }
  try {
    for (const auto& [name, array] : data::read_npz(file.path())) array.to_float_vector();
  } catch (const FileError&) {
  }
  return 0;
}
