#pragma once

#include <cstdint>

/// How readers get at the bytes of a file. A plain value, which threads may share; nothing here throws.
namespace quanta {

/// Copy: the file is read into memory of its own. What happens to it afterwards has no effect on
/// what was read, and a file that shrinks meanwhile is a FileError.
///
/// Map: tensors point into the file (private, copy on write), which costs no copy and lets several
/// processes share its pages. The file has to stay as it is while anything that was read of it
/// lives: one that is cut off ends the process (SIGBUS), one that is overwritten in place changes
/// tensors in silence. Files that are replaced as write_safetensors and save_model do it (a new
/// file, renamed over the old one) are safe.
enum class FileAccess : std::uint8_t { Copy, Map };

}  // namespace quanta
