#pragma once

// Private: what pages and pictures of reports are written with. Whatever comes from a file or a user
// goes through escape().

#include <string>
#include <string_view>

namespace quanta::reporting {

/// Text for HTML and XML, between tags and within quoted attributes: the five characters that mean
/// something there become entities; control characters and bytes that are no UTF-8 become U+FFFD.
std::string escape(std::string_view text);
/// The same without entities: for JSON.
std::string clean_utf8(std::string_view text);
/// At most `length` letters, with "..." in the middle of longer ones.
std::string shortened(std::string_view text, std::size_t length);

/// "12.3 dB", "inf", "-".
std::string decibels_text(double value);
/// With about `digits` significant ones: "0.00123", "1.2e-05", "-" for NaN.
std::string number_text(double value, int digits = 4);
/// "1.23 M".
std::string amount_text(double value);
/// For coordinates: two decimals.
std::string place_text(double value);

/// A whole page around `body`, which is HTML: style and script within it, nothing loaded.
std::string page(std::string_view title, std::string_view body);
/// A part of a page: a heading, a line about it (HTML), and what it shows (HTML).
std::string section(std::string_view heading, std::string_view about, std::string_view content);
/// The colours that pages and pictures share, as CSS.
std::string_view colours();

}  // namespace quanta::reporting
