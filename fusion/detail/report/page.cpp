#include "quanta/fusion/detail/report/page.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace quanta::reporting {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the UTF-8 sequence at the text's begin; 0 where there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  // Longer than needed, surrogates, beyond the last character.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

/// Calls body(sequence) for each character.
template <typename Body>
void for_characters(std::string_view text, Body&& body) {
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) {
      body(kReplacement);
      text.remove_prefix(1);
      continue;
    }
    body(text.substr(0, length));
    text.remove_prefix(length);
  }
}

bool is_control(std::string_view character) {
  const auto byte = static_cast<std::uint8_t>(character[0]);
  return character.size() == 1 && (byte < 0x20 || byte == 0x7F);
}

constexpr std::string_view kStyle = R"css(
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:1100px;margin:0 auto;padding:20px 16px 60px}
h1{font-size:1.5rem;margin:.2em 0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:0 0 4px}
p{margin:0 0 12px;color:var(--dim);max-width:75ch}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px;margin:16px 0}
code,.name{font-family:ui-monospace,monospace;font-size:.86em;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:10px;margin:14px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 12px}
.tile b{display:block;font-size:1.25rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.tile span{color:var(--dim);font-size:.82rem;overflow-wrap:anywhere}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;color:var(--dim);font-size:.85rem;margin:0 0 10px}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
.first{background:var(--first)}.second{background:var(--second)}
.int8{background:var(--int8)}.plain{background:var(--plain)}.weight{background:var(--second)}
.scroll{overflow:auto;max-height:560px}
.row{display:grid;grid-template-columns:minmax(120px,260px) 1fr 6.2em;gap:2px 12px;align-items:center;padding:3px 0}
.track{display:block;background-image:repeating-linear-gradient(to right,var(--line) 0 1px,transparent 1px var(--step,100%))}
.track i{display:block;height:8px;border-radius:0 3px 3px 0;min-width:1px}
.track i+i{margin-top:2px}
.row .num{font-size:.8rem;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.table{overflow-x:auto;max-height:640px}
table{border-collapse:separate;border-spacing:0;font-size:.84rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:5px 9px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{position:sticky;top:0;background:var(--card);z-index:1}
th button{all:unset;cursor:pointer;font-weight:600}
th button:focus-visible{outline:2px solid var(--first);outline-offset:2px}
th[aria-sort=ascending] button::after{content:" \2191"}
th[aria-sort=descending] button::after{content:" \2193"}
td.text,th.text{text-align:left}
td.name{white-space:normal;min-width:130px;max-width:280px}
.poor{color:var(--bad);font-weight:600}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(300px,100%),1fr));gap:14px}
figure{margin:0;border:1px solid var(--line);border-radius:8px;padding:10px;min-width:0}
figcaption{font-size:.82rem;color:var(--dim);margin-bottom:6px}
figcaption .name{color:var(--ink);display:block}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--dim);font:10px system-ui,sans-serif}
.scroll svg{width:auto;max-width:none;margin:0 auto}
svg .label{fill:var(--ink);font:11px ui-monospace,monospace}
ol{margin:0;padding-left:1.3em}
li{margin:6px 0}
.chip{display:inline-block;border:1px solid var(--line);border-radius:99px;padding:0 8px;font-size:.8rem;margin-right:4px}
footer{color:var(--dim);font-size:.82rem}
@media(max-width:600px){
main{padding:12px 10px 40px}section{padding:12px}
.row{grid-template-columns:1fr 5.6em}
.row .name{grid-column:1/-1}
td.name{position:static}}
)css";

// Sorting by a click on a column's head: by the cells' data-v where they have one.
constexpr std::string_view kScript = R"js(
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, table = head.closest("table");
    const column = [...head.parentElement.children].indexOf(head);
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = row => {
      const cell = row.children[column];
      return "v" in cell.dataset ? (cell.dataset.v === "" ? null : Number(cell.dataset.v))
                                 : cell.textContent;
    };
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === null || y === null) return (x === null) - (y === null);
      const order = typeof x === "number" ? x - y : x.localeCompare(y);
      return (down ? -1 : 1) * (order || 0);
    });
    table.tBodies[0].append(...rows);
  });
}
)js";

}  // namespace

std::string escape(std::string_view text) {
  std::string result;
  for_characters(text, [&](std::string_view character) {
    if (is_control(character)) {
      result += kReplacement;
    } else if (character == "&") {
      result += "&amp;";
    } else if (character == "<") {
      result += "&lt;";
    } else if (character == ">") {
      result += "&gt;";
    } else if (character == "\"") {
      result += "&quot;";
    } else if (character == "'") {
      result += "&#39;";
    } else {
      result += character;
    }
  });
  return result;
}

std::string clean_utf8(std::string_view text) {
  std::string result;
  for_characters(text, [&](std::string_view character) { result += character; });
  return result;
}

std::string shortened(std::string_view text, std::size_t length) {
  std::size_t letters = 0;
  for_characters(text, [&](std::string_view) { ++letters; });
  if (letters <= length) return clean_utf8(text);
  const std::size_t front = (length - 3) / 2, back = length - 3 - front;
  std::string result;
  std::size_t at = 0;
  for_characters(text, [&](std::string_view character) {
    if (at == front) result += "...";
    if (at < front || at >= letters - back) result += character;
    ++at;
  });
  return result;
}

std::string decibels_text(double value) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{:.1f}", value);
}

std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "-";
  return fmt::format("{:.{}g}", value, digits);
}

std::string amount_text(double value) {
  constexpr std::array kUnits{"", " k", " M", " G", " T"};
  std::size_t unit = 0;
  while (std::fabs(value) >= 1000.0 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.3g}{}", value, kUnits[unit]);
}

std::string place_text(double value) {
  std::string text = fmt::format("{:.2f}", std::isfinite(value) ? value : 0.0);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string_view colours() {
  return R"css(
:root{color-scheme:light dark;--page:#f6f6f4;--card:#fff;--ink:#1d1f24;--dim:#5d626c;--line:#dfe1e6;
--first:#2f6fde;--second:#d07a1c;--int8:#0d8a7e;--int8-soft:#d5efec;--plain:#7a808c;--plain-soft:#eceef1;
--second-soft:#fbe9d3;--bad:#c0362c;--bad-soft:#f9e2e0}
@media(prefers-color-scheme:dark){:root{--page:#131417;--card:#1c1e23;--ink:#e9eaed;--dim:#a0a6b0;--line:#353941;
--first:#6ea1ff;--second:#f0ab54;--int8:#4cc3b5;--int8-soft:#123b38;--plain:#9096a3;--plain-soft:#2b2e36;
--second-soft:#46321a;--bad:#ff8078;--bad-soft:#472623}}
)css";
}

std::string page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n{}</main>\n"
      "<script>{}</script>\n</body>\n</html>\n",
      escape(title), colours(), kStyle, body, kScript);
}

std::string section(std::string_view heading, std::string_view about, std::string_view content) {
  return fmt::format("<section>\n<h2>{}</h2>\n<p>{}</p>\n{}</section>\n", escape(heading), about,
                     content);
}

}  // namespace quanta::reporting
