#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace quanta::coverage {

/// The list as Markdown: what docs/coverage.md holds.
std::string to_markdown();

/// What is wrong with the list, given the sources in `root`: headers that do not declare what a row
/// names, tests that do not mention it, suites without such a case, types that differ from what
/// supports() says, and a docs/coverage.md that is not to_markdown(). Empty when all is well.
std::vector<std::string> problems(const std::filesystem::path& root);

}  // namespace quanta::coverage
