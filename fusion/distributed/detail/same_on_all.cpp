#include "quanta/fusion/distributed/detail/same_on_all.h"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <span>
#include <string_view>

#include "quanta/runtime/detail/hash_bytes.h"
#include "quanta/runtime/error.h"

namespace quanta::distributed::detail {
namespace {

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string shown(std::string_view line) {
  return line.empty() ? "nothing more" : fmt::format("'{}'", line);
}

std::string first_difference(std::string_view expected, std::string_view given) {
  while (!expected.empty() || !given.empty()) {
    const std::string_view theirs = next_line(expected);
    const std::string_view mine = next_line(given);
    if (theirs != mine) {
      return fmt::format("expected {} as on rank 0, got {}", shown(theirs), shown(mine));
    }
  }
  return {};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

void require_same_lines(const Communicator& comm, const std::string& what,
                        const std::string& text) {
  const std::uint64_t mine = quanta::detail::hash_bytes(bytes_of(text));
  std::uint64_t first = mine;
  comm.broadcast(std::as_writable_bytes(std::span(&first, 1)), 0, what);
  std::int64_t different = first == mine ? 0 : 1;
  comm.sum(std::span(&different, 1), what);
  if (different == 0) return;
  const std::string difference = first_difference(comm.broadcast(text, 0, what), text);
  const auto all = comm.all_gather(bytes_of(difference), what);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    throw ArgumentError(fmt::format(
        "distributed: {}: {} on rank {}", what,
        std::string_view(reinterpret_cast<const char*>(all[rank].data()), all[rank].size()), rank));
  }
}

void broadcast_bytes(const Communicator& comm, std::vector<std::byte>& bytes, int root,
                     const std::string& place) {
  std::uint64_t size = bytes.size();
  comm.broadcast(std::as_writable_bytes(std::span(&size, 1)), root, place);
  bytes.resize(static_cast<std::size_t>(size));
  if (size > 0) comm.broadcast(std::span(bytes), root, place);
}

void on_first_rank(const Communicator& comm, const std::string& place,
                   const std::function<void()>& work) {
  std::string report;  // a letter for the type, and the text
  std::exception_ptr error;
  if (comm.is_first()) {
    try {
      work();
    } catch (const FileError& caught) {
      report = std::string("F") + caught.what();
      error = std::current_exception();
    } catch (const ArgumentError& caught) {
      report = std::string("A") + caught.what();
      error = std::current_exception();
    } catch (const NumericError& caught) {
      report = std::string("N") + caught.what();
      error = std::current_exception();
    } catch (const std::exception& caught) {
      report = std::string("E") + caught.what();
      error = std::current_exception();
    }
  }
  report = comm.broadcast(report, 0, place);
  if (error) std::rethrow_exception(error);
  if (report.empty()) return;
  const std::string text = report.substr(1);
  switch (report.front()) {
    case 'F':
      throw FileError(text);
    case 'A':
      throw ArgumentError(text);
    case 'N':
      throw NumericError(text);
    default:
      throw Error(text);
  }
}

}  // namespace quanta::distributed::detail
