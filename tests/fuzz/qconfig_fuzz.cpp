#include "json_change.h"
#include "quanta/fusion/qconfig_file.h"
#include "support.h"

// Any text gives a mapping, which is written again, or is refused.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  fuzz::read_or_refuse(
      [&] { to_json(qconfig_mapping_from_json(std::string(fuzz::as_text(data, size)), "fuzz")); });
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  quanta::fuzz::Random random(seed);
  const std::string text =
      quanta::fuzz::changed_json_text(quanta::fuzz::as_text(data, size), max_size, random);
  return quanta::fuzz::put_back(text, data, size, max_size);
}
