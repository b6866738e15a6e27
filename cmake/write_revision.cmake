# Run with GIT, SOURCE_DIR and HEADER: writes the revision into the header, unless it is there.
cmake_minimum_required(VERSION 3.25)
execute_process(
  COMMAND "${GIT}" -C "${SOURCE_DIR}" rev-parse --short=10 HEAD
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#define QUANTA_REVISION \"@revision@\"\n" @ONLY)
