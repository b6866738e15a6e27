#include "completion.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <optional>
#include <string_view>
#include <vector>

#include "usage.h"

namespace quanta::cli {
namespace {

using Commands = std::vector<const CLI::App*>;

Commands commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// The words that CLI11's IsMember allows: "TEXT:{a,b}".
std::optional<std::vector<std::string>> words_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return std::nullopt;
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

/// Text without a name of its own stands for a path.
bool is_path(const CLI::Option& option) { return option.get_type_name().starts_with("TEXT"); }

std::vector<std::string> long_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// bash ---------------------------------------------------------------------------------------

std::string bash_values(const CLI::App& command, const CLI::Option& option) {
  std::vector<std::string> patterns;
  for (const std::string& name : long_names(option)) {
    patterns.push_back(fmt::format("'{} {}'", command.get_name(), name));
  }
  const auto words = words_of(option);
  const std::string reply = words ? fmt::format("_quanta_words '{}'", fmt::join(*words, " "))
                            : is_path(option) ? "_quanta_files"
                                              : "COMPREPLY=()";
  return fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), reply);
}

std::string bash_script(const CLI::App& app) {
  std::string values, options, positionals;
  for (const CLI::App* command : commands_of(app)) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) {
        const auto words = words_of(*option);
        positionals += fmt::format(
            "    {}) {}; return ;;\n", command->get_name(),
            words ? fmt::format("_quanta_words '{}'", fmt::join(*words, " ")) : "_quanta_files");
      }
      for (const std::string& name : long_names(*option)) names.push_back(name);
      if (takes_value(*option) && !option->get_lnames().empty()) {
        values += bash_values(*command, *option);
      }
    }
    options +=
        fmt::format("    {}) _quanta_words '{}' ;;\n", command->get_name(), fmt::join(names, " "));
  }
  return fmt::format(R"(# bash completion for quanta, written by `quanta completion bash`.
_quanta_words() {{ COMPREPLY=($(compgen -W "$1" -- "${{COMP_WORDS[COMP_CWORD]}}")); }}
_quanta_files() {{
  compopt -o filenames 2>/dev/null
  local IFS=$'\n'
  COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
_quanta() {{
  local command=${{COMP_WORDS[1]-}} before=${{COMP_WORDS[COMP_CWORD-1]-}}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    _quanta_words '{} --help --version'
    return
  fi
  case "$command $before" in
{}  esac
  if [[ ${{COMP_WORDS[COMP_CWORD]}} != -* ]]; then
    case "$command" in
{}    esac
  fi
  case "$command" in
{}  esac
}}
complete -F _quanta quanta
)",
                     fmt::join(command_names(app), " "), values, positionals, options);
}

// zsh ----------------------------------------------------------------------------------------

/// Within single quotes, for _arguments and _describe, which read brackets and colons.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else if (c == '\n') {
      result += ' ';
    } else {
      if (c == ':' || c == '[' || c == ']' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result;
}

std::string zsh_action(const CLI::Option& option) {
  if (const auto words = words_of(option)) return fmt::format("({})", fmt::join(*words, " "));
  return is_path(option) ? "_files" : "";
}

std::string zsh_command(const CLI::App& command) {
  std::string text = fmt::format("    {})\n      _arguments", command.get_name());
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      text +=
          fmt::format(" \\\n        ':{}:{}'", zsh_text(option->get_name()), zsh_action(*option));
      continue;
    }
    for (const std::string& name : long_names(*option)) {
      const std::string value =
          takes_value(*option) ? fmt::format(":value:{}", zsh_action(*option)) : "";
      text +=
          fmt::format(" \\\n        '*{}[{}]{}'", name, zsh_text(option->get_description()), value);
    }
  }
  return text + " ;;\n";
}

std::string zsh_script(const CLI::App& app) {
  std::string descriptions, cases;
  for (const CLI::App* command : commands_of(app)) {
    descriptions +=
        fmt::format("    '{}:{}'\n", command->get_name(), zsh_text(command->get_description()));
    cases += zsh_command(*command);
  }
  return fmt::format(R"(#compdef quanta
# zsh completion for quanta, written by `quanta completion zsh`.
_quanta() {{
  local -a commands
  commands=(
{}    '--help:Print the help'
    '--version:Print the version'
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case ${{words[1]}} in
{}  esac
}}
if [ "$funcstack[1]" = _quanta ]; then _quanta "$@"; else compdef _quanta quanta; fi
)",
                     descriptions, cases);
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  return shell == "zsh" ? zsh_script(app) : bash_script(app);
}

}  // namespace quanta::cli
