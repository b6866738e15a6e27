#include <string>

#include "pt_input.h"
#include "runtime/file_test_util.h"

// A pickle alone, in an archive that is right: changes need not find the way into one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string storage(64, '\x01');
  const std::string file =
      quanta::test::make_pt(std::string(quanta::fuzz::as_text(data, size)), storage);
  quanta::fuzz::read_pt_bytes(std::as_bytes(std::span(file)));
  return 0;
}
