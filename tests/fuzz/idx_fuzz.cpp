#include "quanta/nn/data/idx.h"

#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  const fuzz::MemoryFile file(fuzz::as_text(data, size));
  try {
    data::read_idx(file.path()).to_float_vector();
  } catch (const FileError&) {
  }
  return 0;
}
