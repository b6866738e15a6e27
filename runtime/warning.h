#pragma once

#include <functional>
#include <string>
#include <string_view>

/// What is no error but probably not what was meant. Safe from many threads at once.
namespace quanta {

using WarningHandler = std::function<void(std::string_view text)>;

/// Who gets warnings; gives the handler before. An empty one stands for the default: each text once,
/// a thousand texts at most, as a line on stderr that begins with "quanta: warning: ". What a handler throws, the caller of the
/// function that warns gets.
WarningHandler set_warning_handler(WarningHandler handler);

/// Warns. Throws what the handler throws.
void warn(const std::string& text);

}  // namespace quanta
