#include "json_change.h"
#include "quanta/observers/aimet/encoding_json.h"
#include "support.h"

// Any text gives encodings or is refused; what was read is written in each version or refused.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  using aimet::EncodingVersion;
  static const std::map<std::string, Dims> sizes{{"fc.weight", {6, 4}},
                                                 {"conv.weight", {4, 3, 3, 3}}};
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::read_or_refuse([&] {
    aimet::EncodingFile file = aimet::encoding_file_from_json(text, sizes);
    for (const EncodingVersion version : {EncodingVersion::V0_6_1, EncodingVersion::V1_0_0,
                                          EncodingVersion::V2_0_0, EncodingVersion::V2_1_0}) {
      file.version = version;
      fuzz::read_or_refuse([&] { to_json(file); });
    }
  });
  fuzz::read_or_refuse([&] { aimet::encoding_from_json(text, Dims{6, 4}); });
  fuzz::read_or_refuse([&] { aimet::encoding_from_json(text); });
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  quanta::fuzz::Random random(seed);
  const std::string text =
      quanta::fuzz::changed_json_text(quanta::fuzz::as_text(data, size), max_size, random);
  return quanta::fuzz::put_back(text, data, size, max_size);
}
