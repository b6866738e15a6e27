#include "quanta/nn/skip_init.h"

namespace quanta::nn {
namespace {

thread_local int scopes = 0;

}  // namespace

SkipInit::SkipInit() noexcept { ++scopes; }
SkipInit::~SkipInit() { --scopes; }

bool SkipInit::active() noexcept { return scopes > 0; }

}  // namespace quanta::nn
