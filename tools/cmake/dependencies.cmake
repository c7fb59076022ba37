# Third-party libraries, under one name each.
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_path(DSPARK_RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED
  DOC "Folder that holds Random123/philox.h (package librandom123-dev)")
find_path(DSPARK_XXHASH_INCLUDE_DIR xxhash.h REQUIRED
  DOC "Folder that holds xxhash.h (package libxxhash-dev)")

add_library(dspark_yaml INTERFACE)
if(TARGET yaml-cpp::yaml-cpp)
  target_link_libraries(dspark_yaml INTERFACE yaml-cpp::yaml-cpp)
else()
  target_link_libraries(dspark_yaml INTERFACE yaml-cpp)  # yaml-cpp 0.7 has no namespaced target
endif()

add_library(dspark_hdf5 INTERFACE)
target_include_directories(dspark_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(dspark_hdf5 INTERFACE ${HDF5_C_LIBRARIES})

# Libraries that are headers alone. A default folder must not be given again.
foreach(name random123 xxhash)
  string(TOUPPER ${name} upper)
  add_library(dspark_${name} INTERFACE)
  if(NOT DSPARK_${upper}_INCLUDE_DIR STREQUAL "/usr/include")
    target_include_directories(dspark_${name} SYSTEM INTERFACE ${DSPARK_${upper}_INCLUDE_DIR})
  endif()
endforeach()
