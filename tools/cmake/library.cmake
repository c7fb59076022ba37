# dspark_library(<name> FOLDER <folder> [SOURCES ...] [USES <library> ...])
#
# One library per folder. Its headers are reachable as "<folder>/x.h" only for those that link to it: each library exports
# an include root of its own that holds nothing but a link to its folder, so an include of a folder that is not in USES does
# not compile.
function(dspark_library name)
  cmake_parse_arguments(ARG "" "FOLDER" "SOURCES;USES;PRIVATE_USES" ${ARGN})
  set(root ${CMAKE_BINARY_DIR}/include/${name})
  get_filename_component(parent ${root}/${ARG_FOLDER} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/${ARG_FOLDER} SYMBOLIC)
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_include_directories(${name} PUBLIC ${root})
    target_link_libraries(${name} PUBLIC ${ARG_USES} PRIVATE dspark_flags ${ARG_PRIVATE_USES})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${root})
    target_link_libraries(${name} INTERFACE ${ARG_USES})
  endif()
endfunction()
