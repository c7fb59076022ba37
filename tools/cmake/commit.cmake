# dspark_commit(OUT): sets OUT to the commit of the source tree, with "-dirty" where files differ from it; to "" where the tree is
# no repository of its own or there is no git. A commit or checkout configures anew.
function(dspark_commit out)
  set(${out} "${DSPARK_COMMIT}" PARENT_SCOPE)
  find_program(DSPARK_GIT git)
  mark_as_advanced(DSPARK_GIT)
  if(DSPARK_COMMIT OR NOT DSPARK_GIT)
    return()
  endif()
  # Not the commit of a repository that the tree merely lies in.
  _dspark_git(top rev-parse --show-toplevel)
  file(REAL_PATH "${PROJECT_SOURCE_DIR}" source)
  if(NOT top STREQUAL source)
    return()
  endif()
  _dspark_git(commit describe --always --dirty)
  set(${out} "${commit}" PARENT_SCOPE)
  _dspark_git(log rev-parse --git-path logs/HEAD)
  cmake_path(ABSOLUTE_PATH log BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
  if(EXISTS "${log}")
    set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${log}")
  endif()
endfunction()

# Sets `out` to what git prints; to "" where it fails.
function(_dspark_git out)
  execute_process(
    COMMAND "${DSPARK_GIT}" ${ARGN}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    OUTPUT_VARIABLE text
    ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE failed)
  if(failed)
    set(text "")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()
