# holdfast_room(PATH ROOMS room... PUBLIC_LIBS bundle... LIBS bundle...): the library of one room. PUBLIC_LIBS are those its
# headers speak of.
#
# Every room gets an include directory of its own that holds nothing but a link to it, so a target sees exactly the
# headers of the rooms it names: the arrows of the house are enforced by the compiler.

set(HOLDFAST_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror)

function(holdfast_room_target path result)
  string(REPLACE "/" "_" name ${path})
  set(${result} holdfast_${name} PARENT_SCOPE)
endfunction()

function(holdfast_room path)
  cmake_parse_arguments(ROOM "" "" "ROOMS;LIBS;PUBLIC_LIBS" ${ARGN})
  holdfast_room_target(${path} target)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${path}/*.cc)
  if(HOLDFAST_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_cuda\\.cc$")
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${path}/*.cu)
    list(APPEND sources ${cuda_sources})
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/.*\\.cc$")
    file(GLOB stubs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${path}/cuda/no_cuda.cc)
    list(APPEND sources ${stubs})
  endif()

  set(scope PUBLIC)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${HOLDFAST_WARNINGS}>)
  else()
    set(scope INTERFACE)
    add_library(${target} INTERFACE)
  endif()

  get_filename_component(parent ${path} DIRECTORY)
  set(view ${CMAKE_BINARY_DIR}/rooms/${target})
  file(MAKE_DIRECTORY ${view}/${parent})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${path} ${view}/${path} SYMBOLIC)
  target_include_directories(${target} ${scope} ${view})

  foreach(room ${ROOM_ROOMS})
    holdfast_room_target(${room} dependency)
    target_link_libraries(${target} ${scope} ${dependency})
  endforeach()
  foreach(lib ${ROOM_PUBLIC_LIBS})
    target_link_libraries(${target} ${scope} Holdfast::${lib})
  endforeach()
  if(sources)
    foreach(lib ${ROOM_LIBS})
      target_link_libraries(${target} PRIVATE Holdfast::${lib})
    endforeach()
  endif()
endfunction()
