#include "quanta/ops/cuda/shared_library.h"

#include <dlfcn.h>

#include "quanta/runtime/check.h"

namespace quanta::cuda {
namespace {

// Where the build found the toolkit, and what tools/setup --cuda fetches beside it.
constexpr std::string_view kToolkitFolders[] = {QUANTA_CUDA_LIBRARY_DIR,
                                                QUANTA_CUDA_FETCHED_DIR "/lib"};

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
  for (const std::string_view folder : kToolkitFolders) {
    handle_ = dlopen(fmt::format("{}/{}", folder, name).c_str(), RTLD_NOW);
    if (handle_ != nullptr) return;
  }
  throw BackendError(
      fmt::format("cuda: {}: expected the library that {} brings, got none: {} (LD_LIBRARY_PATH "
                  "may name its folder)",
                  name, source, why));
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
