#include <algorithm>
#include <cstring>

#include "pt_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quanta::fuzz::read_pt_bytes(quanta::fuzz::as_bytes(data, size));
  return 0;
}

// Directory entries of zip archives hold checksums; 0 means none, so that changes get past it.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned /*seed*/) {
  constexpr std::uint8_t kEntry[] = {'P', 'K', 1, 2};
  const std::size_t changed = LLVMFuzzerMutate(data, size, max_size);
  for (std::size_t i = 0; i + 46 <= changed; ++i) {
    if (std::equal(kEntry, kEntry + 4, data + i)) std::memset(data + i + 16, 0, 4);
  }
  return changed;
}
