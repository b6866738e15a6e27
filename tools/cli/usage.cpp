#include "usage.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <string_view>

namespace quanta::cli {
namespace {

/// Letters to change, drop, add or swap with the next one (optimal string alignment).
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> rows(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

struct Mistake {
  std::string wrong;
  std::string expected;
};

int tell(const std::string& command, const Mistake& mistake) {
  fmt::print(stderr, "{}: {}\nexpected: {}\nsee: {} --help\n", command, mistake.wrong,
             mistake.expected, command);
  return kUsageError;
}

/// "--batch INT in [1 - 4096]: Inputs at a time".
std::string describe(const CLI::Option& option) {
  std::string type = option.get_type_name();
  // CLI11 writes the type before each check: "INT:INT in [1 - 10]", "TEXT:{a,b}", "TEXT:FILE".
  if (const std::size_t colon = type.find(':'); colon != std::string::npos) {
    type = type.substr(colon + 1);
  }
  return fmt::format("{}{}{}: {}", option.get_name(), type.empty() ? "" : " ", type,
                     option.get_description());
}

/// Where `name` stands as a whole word in `text`; npos if nowhere.
std::size_t find_word(std::string_view text, std::string_view name) {
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  };
  for (std::size_t at = text.find(name); at != std::string_view::npos;
       at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) {
      return at;
    }
  }
  return std::string_view::npos;
}

/// The option that the text names first.
const CLI::Option* named_option(const CLI::App& command, std::string_view text) {
  const CLI::Option* found = nullptr;
  std::size_t first = std::string_view::npos;
  for (const CLI::Option* option : command.get_options()) {
    const std::size_t at = find_word(text, option->get_name());
    if (at < first) {
      first = at;
      found = option;
    }
  }
  return found;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

Mistake unknown_argument(const CLI::App& command, const std::string& given) {
  if (!given.starts_with('-')) {
    return {.wrong = fmt::format("the argument {} is one too many", given),
            .expected = "nothing more, or options"};
  }
  const std::vector<std::string> names = option_names(command);
  const auto near = nearest(given.substr(0, given.find('=')), names);
  return {.wrong = fmt::format("the argument {} is not known", given),
          .expected = near ? fmt::format("{} (the nearest)", describe(*command.get_option(*near)))
                           : fmt::format("one of {}", fmt::join(names, ", "))};
}

/// The text of CLI11's exception without a line break at its end.
std::string text_of(const CLI::Error& error) {
  std::string text = error.what();
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.pop_back();
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Mistake mistake_of(const CLI::App& command, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extras = command.remaining();
    if (!extras.empty()) return unknown_argument(command, extras.front());
  }
  const std::string text = text_of(error);
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) {
    // "--calib requires --weights": the second one is missing.
    const std::size_t second = text.find(" requires ");
    const CLI::Option* missing =
        second == std::string::npos ? nullptr : named_option(command, text.substr(second));
    if (missing != nullptr) return {.wrong = text, .expected = describe(*missing)};
  }
  const CLI::Option* option = named_option(command, text);
  if (option != nullptr) return {.wrong = text, .expected = describe(*option)};
  return {.wrong = text, .expected = "what the help says"};
}

}  // namespace

std::optional<std::string> nearest(const std::string& name,
                                   const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t letters = distance(name, candidate);
    if (letters < least) {
      least = letters;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> names = command_names(app);
  const std::string given = argc > 1 ? argv[1] : "";
  const bool is_command = std::find(names.begin(), names.end(), given) != names.end();
  if (given.empty()) {
    return tell("quanta", {.wrong = "a command is missing",
                           .expected = fmt::format("one of {}", fmt::join(names, ", "))});
  }
  if (!is_command && given.front() != '-') {
    const auto near = nearest(given, names);
    const std::string all = fmt::format("one of {}", fmt::join(names, ", "));
    return tell("quanta",
                {.wrong = fmt::format("there is no command {}", given),
                 .expected = near ? fmt::format("{} (the nearest), or {}", *near, all) : all});
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = is_command ? *app.get_subcommand(given) : app;
    const std::vector<std::string> known = option_names(app);
    if (!is_command && given != "-h" &&
        std::find(known.begin(), known.end(), given) == known.end()) {
      return tell("quanta", unknown_argument(app, given));
    }
    return tell(is_command ? "quanta " + given : "quanta", mistake_of(command, error));
  }
  return std::nullopt;
}

}  // namespace quanta::cli
