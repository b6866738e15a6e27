#include "quanta/runtime/detail/json.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using detail::Json;
using detail::parse_json;
using detail::to_json_text;

Json parse(std::string_view text) { return parse_json(text, "test"); }

}  // namespace

TEST_CASE("json: values of every kind survive a round trip") {
  const std::string text =
      R"({"a":[1,-2,0.5,1e+300,true,false,null],"b":{"c":"x\ny\"\\\u0001"},"":{},"d":[]})";
  const Json value = parse(text);
  CHECK(to_json_text(value) == text);
  CHECK(parse(to_json_text(value)) == value);
  CHECK(value.find("a")->as_array()->size() == 7);
  CHECK(*value.find("b")->find("c")->as_string() == "x\ny\"\\\x01");
  CHECK(value.find("missing") == nullptr);
}

TEST_CASE("json: doubles read back as the same bits") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) {
    const auto value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const Json back = parse(to_json_text(Json(value)));
    REQUIRE(back.is_number());
    REQUIRE(back.as_int() == nullptr);
    REQUIRE(std::bit_cast<std::uint64_t>(back.as_number()) == std::bit_cast<std::uint64_t>(value));
  }
  for (const double value :
       {0.0, -0.0, 1.0, 1e22, 123456789.0, 5e-324, std::numeric_limits<double>::max(), 0.1}) {
    const Json back = parse(to_json_text(Json(value)));
    CHECK(std::bit_cast<std::uint64_t>(back.as_number()) == std::bit_cast<std::uint64_t>(value));
    CHECK(back.as_int() == nullptr);
  }
}

TEST_CASE("json: integers keep all of their 64 bits") {
  CHECK(*parse("9223372036854775807").as_int() == std::numeric_limits<std::int64_t>::max());
  CHECK(*parse("-9223372036854775808").as_int() == std::numeric_limits<std::int64_t>::min());
  CHECK(parse("9223372036854775808").as_int() == nullptr);
  CHECK(parse("9223372036854775808").as_number() == 9223372036854775808.0);
  CHECK(std::signbit(parse("-0").as_number()));
}

TEST_CASE("json: escapes become UTF-8") {
  CHECK(*parse(R"("\u0041\u00e9\u20ac\ud83d\ude00\/\b\f\t\r")").as_string() ==
        "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/\b\f\t\r");
  CHECK(*parse("\"\xf0\x9f\x98\x80\"").as_string() == "\xf0\x9f\x98\x80");
}

TEST_CASE("json: text that is not JSON is refused with its place") {
  for (const char* text : {"",          " ",           "{",           "[",
                           "[1",        "[1,",         "[1,]",        "{\"a\"}",
                           "{\"a\":}",  "{\"a\":1,}",  "{a:1}",       "tru",
                           "nulll",     "01",          "1.",          ".5",
                           "+1",        "-",           "1e",          "1e+",
                           "NaN",       "Infinity",    "\"",          "\"\\x\"",
                           "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"",
                           "\"a\nb\"",  "[1] 2",       "'a'",         "1e999",
                           "// c\n1",   "[1 2]",       "{\"a\" 1}"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse(text), FileError);
  }
  CHECK_THROWS_WITH_AS(parse("[1, x]"), "test: json byte 4: expected a value, got 'x'", FileError);
  CHECK_THROWS_WITH_AS(parse("[1"), doctest::Contains("byte 2: expected ',' or ']', got the end"),
                       FileError);
}

TEST_CASE("json: bytes that are not UTF-8 are refused both ways") {
  for (const char* bytes : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80",
                            "\xf4\x90\x80\x80", "\xf8", "\xe2\x82", "\xff"}) {
    const std::string text = bytes;
    CHECK_THROWS_AS(parse("\"" + text + "\""), FileError);
    CHECK_THROWS_AS(to_json_text(Json(text)), ArgumentError);
  }
}

TEST_CASE("json: a key that stands twice is refused") {
  CHECK_THROWS_WITH_AS(parse(R"({"a": 1, "b": 2, "a": 3})"), doctest::Contains("got 'a' twice"),
                       FileError);
  CHECK_THROWS_AS(parse(R"({"a": 1, "\u0061": 3})"), FileError);
  CHECK_NOTHROW(parse(R"({"a": {"a": 1}, "b": {"a": 1}})"));
}

TEST_CASE("json: nesting is bounded") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK_NOTHROW(parse(nested(60)));
  CHECK_THROWS_WITH_AS(parse(nested(1000000)), doctest::Contains("levels of nesting"), FileError);
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  CHECK_THROWS_AS(parse(objects), FileError);
}

TEST_CASE("json: NaN and infinities are not written") {
  CHECK_THROWS_AS(to_json_text(Json(std::numeric_limits<double>::quiet_NaN())), ArgumentError);
  CHECK_THROWS_AS(to_json_text(Json(std::numeric_limits<double>::infinity())), ArgumentError);
}

}  // namespace quanta
