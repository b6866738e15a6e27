#include "quanta/ops/cuda/shared_library.h"

#include <dlfcn.h>

#include "quanta/runtime/check.h"

namespace quanta::cuda {
namespace {

// dlerror() belongs to the calling thread.
std::string last_error() {
  const char* text = dlerror();
  return text == nullptr ? "no reason" : text;
}

}  // namespace

SharedLibrary::SharedLibrary(const char* name, std::string_view source)
    : name_(name), handle_(dlopen(name, RTLD_NOW)) {
  if (handle_ != nullptr) return;
  const std::string why = last_error();
  const std::string in_toolkit = fmt::format("{}/{}", QUANTA_CUDA_LIBRARY_DIR, name);
  handle_ = dlopen(in_toolkit.c_str(), RTLD_NOW);
  if (handle_ == nullptr) {
    throw BackendError(
        fmt::format("cuda: {}: expected the library that {} brings, got none: {} (LD_LIBRARY_PATH "
                    "may name its folder)",
                    name, source, why));
  }
}

void* SharedLibrary::symbol(const char* function_name) const {
  void* found = dlsym(handle_, function_name);
  if (found == nullptr) {
    throw BackendError(fmt::format("cuda: {}: expected a function {}, got none: {}", name_,
                                   function_name, last_error()));
  }
  return found;
}

}  // namespace quanta::cuda
