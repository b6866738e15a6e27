#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <malloc.h>

namespace {

// The C library fills what it gives (floats of 8e37) and what it takes back (no address): what is read
// before it was written or after its end makes a test fail without a sanitizer, too.
[[maybe_unused]] const int kFilled = mallopt(M_PERTURB, 0x81);

}  // namespace
