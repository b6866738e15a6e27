#include "quanta/observers/statistics_file.h"

#include "safetensors_change.h"
#include "support.h"

// Any file gives collectors or is refused; what was loaded is saved again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  const fuzz::MemoryFile file(fuzz::as_text(data, size));
  fuzz::read_or_refuse([&] {
    for (const auto& [name, collector] : load_statistics(file.path())) {
      StateDict state;
      collector->save_state(state, "");
    }
  });
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  quanta::fuzz::Random random(seed);
  const std::string file =
      quanta::fuzz::changed_safetensors(quanta::fuzz::as_text(data, size), max_size, random);
  return quanta::fuzz::put_back(file, data, size, max_size);
}
