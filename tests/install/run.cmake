# run(COMMAND ...): runs it, and stops with all that it printed if it fails.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${output}\nfailed (${result}): ${command}")
  endif()
  list(GET ARGN 0 program)
  if(NOT program STREQUAL CMAKE_COMMAND)
    message(STATUS "${program} printed: ${output}")
  endif()
endfunction()
