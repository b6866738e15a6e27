#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace quanta::coverage {

/// The list as Markdown: what docs/coverage.md holds. The documents' names are read from the
/// repository in `root`.
std::string to_markdown(const std::filesystem::path& root);

/// What is wrong with the list, given the sources in `root`: headers that do not declare what a row
/// names, tests that do not mention it, suites without such a case, types that differ from what
/// supports() says, names of the five documents without
/// a row, and a docs/coverage.md that is not to_markdown(). Empty when all is well.
std::vector<std::string> problems(const std::filesystem::path& root);

}  // namespace quanta::coverage
