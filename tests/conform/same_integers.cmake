# Runs SUITES with one and two threads, held down to each instruction set that CONFORM lists, and
# fails unless every run passes and all give the same hashes of integers. Unsupported cases are
# unsupported everywhere.

execute_process(COMMAND ${CONFORM} --list-isa OUTPUT_VARIABLE isas RESULT_VARIABLE code)
string(REGEX MATCHALL "[^\n]+" isas "${isas}")
if(NOT code EQUAL 0 OR isas STREQUAL "")
  message(FATAL_ERROR "--list-isa: exit code ${code}, ${isas}")
endif()
set(settings "")
foreach(isa IN LISTS isas)
  list(APPEND settings ${isa}:1 ${isa}:2)
endforeach()

set(reference "")
foreach(setting IN LISTS settings)
  string(REPLACE ":" ";" parts ${setting})
  list(GET parts 0 isa)
  list(GET parts 1 threads)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env OMP_NUM_THREADS=${threads}
            ${CONFORM} --isa ${isa} --allow-unsupported --dump-hash ${SUITES}
    OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "isa ${isa}, ${threads} threads: exit code ${code}\n${output}${errors}")
  endif()
  string(REGEX MATCHALL "hash [^\n]+" hashes "${output}")
  if(hashes STREQUAL "")
    message(FATAL_ERROR "isa ${isa}, ${threads} threads: no hashes in\n${output}")
  endif()
  if(reference STREQUAL "")
    set(reference "${hashes}")
    set(reference_setting ${setting})
  elseif(NOT hashes STREQUAL reference)
    message(FATAL_ERROR "${setting} gives other integers than ${reference_setting}:\n"
                        "${hashes}\n${reference}")
  endif()
  message(STATUS "isa ${isa}, ${threads} threads: ok")
endforeach()
string(REPLACE ";" "\n" lines "${reference}")
message(STATUS "the same everywhere:\n${lines}")
