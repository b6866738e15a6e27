#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <malloc.h>

namespace {

// The C library fills what it gives (floats of 8e37) and what it takes back (no address), but for small
// blocks that a thread keeps: with GLIBC_TUNABLES=glibc.malloc.perturb=129:glibc.malloc.tcache_count=0 for
// those, too. What is read too early or too late then makes tests fail without a sanitizer.
[[maybe_unused]] const int kFilled = mallopt(M_PERTURB, 0x81);

}  // namespace
