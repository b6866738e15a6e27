#pragma once

// Private: NVIDIA's libraries, which neither linking nor starting a program asks for. In builds with
// CUDA only.

#include <string>
#include <string_view>

namespace quanta::cuda {

/// A library that is opened once and stays open.
class SharedLibrary {
 public:
  /// "libcublasLt.so.13", looked for as programs look for their libraries, and where the toolkit of
  /// the build lay. `source`: what brings it. Throws BackendError that says so when there is none.
  SharedLibrary(const char* name, std::string_view source);

  void* handle() const noexcept { return handle_; }
  /// Sets `function` to that of the library. Throws BackendError when it has none of that name.
  template <typename Function>
  void find(const char* function_name, Function& function) const {
    function = reinterpret_cast<Function>(symbol(function_name));
  }

 private:
  void* symbol(const char* function_name) const;

  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace quanta::cuda
