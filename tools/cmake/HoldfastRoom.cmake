# holdfast_room(PATH ROOMS room... PUBLIC_LIBS bundle... LIBS bundle... PROTO name): the library of one room. PUBLIC_LIBS are
# those its headers speak of; PROTO is the room's protocol, NAME.proto.
#
# Every room gets an include directory of its own that holds nothing but a link to it, so a target sees exactly the
# headers of the rooms it names: the arrows of the house are enforced by the compiler.

set(HOLDFAST_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror)

function(holdfast_room_target path result)
  string(REPLACE "/" "_" name ${path})
  set(${result} holdfast_${name} PARENT_SCOPE)
endfunction()

# Generates PROTO's messages and service into a library of its own, which only this room sees, without warnings.
function(holdfast_protocol target proto)
  set(out ${CMAKE_BINARY_DIR}/protocol)
  file(MAKE_DIRECTORY ${out})
  set(generated ${out}/${proto}.pb.cc ${out}/${proto}.grpc.pb.cc)
  add_custom_command(
    OUTPUT ${generated} ${out}/${proto}.pb.h ${out}/${proto}.grpc.pb.h
    COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR} --cpp_out=${out} --grpc_out=${out}
            --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${CMAKE_SOURCE_DIR}/${proto}.proto
    DEPENDS ${CMAKE_SOURCE_DIR}/${proto}.proto)
  add_custom_target(protocol DEPENDS ${generated})  # for tools that look at sources before anything is built
  add_library(${target}_protocol STATIC ${generated} ${out}/${proto}.pb.h ${out}/${proto}.grpc.pb.h)
  target_include_directories(${target}_protocol SYSTEM PUBLIC ${out})
  target_link_libraries(${target}_protocol PUBLIC Holdfast::Grpc)
  target_link_libraries(${target} PRIVATE ${target}_protocol)
  add_library(Holdfast::Protocol ALIAS ${target}_protocol)  # its tests see it, too
  add_dependencies(${target} ${target}_protocol)
endfunction()

function(holdfast_room path)
  cmake_parse_arguments(ROOM "" "PROTO" "ROOMS;LIBS;PUBLIC_LIBS" ${ARGN})
  holdfast_room_target(${path} target)
  set(folder ${CMAKE_SOURCE_DIR}/${path})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc ${folder}/cpu/*.cc ${folder}/cuda/*.cc)
  if(HOLDFAST_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_cuda\\.cc$")
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${folder}/cuda/*.cu)
    file(GLOB hopper_sources CONFIGURE_DEPENDS ${folder}/cuda/*_hopper.cu)
    list(REMOVE_ITEM cuda_sources "" ${hopper_sources})
    list(APPEND sources ${cuda_sources})
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/.*\\.cc$")
    file(GLOB stubs CONFIGURE_DEPENDS ${folder}/cuda/no_cuda.cc)
    list(APPEND sources ${stubs})
    # An object of their own, so that tests can link something else in their place.
    set_source_files_properties(${stubs} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()

  set(scope PUBLIC)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${HOLDFAST_WARNINGS}>)
    if(path STREQUAL kernels)  # Highway compiles each of its files once for every instruction set
      set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
    endif()
    if(hopper_sources)  # of instructions that no other GPU has, nor code that is made for later ones
      add_library(${target}_hopper OBJECT ${hopper_sources})
      set_target_properties(${target}_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real)
      target_include_directories(${target}_hopper PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_hopper>)
    endif()
    if(ROOM_PROTO)
      holdfast_protocol(${target} ${path}/${ROOM_PROTO})
    endif()
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

# Gives a room the definition of BuildId(), made anew whenever a source has changed.
function(holdfast_build_id path)
  holdfast_room_target(${path} target)
  set(out ${CMAKE_BINARY_DIR}/build_id.cc)
  add_custom_target(build_id COMMAND ${CMAKE_COMMAND} -D OUT=${out} -P ${CMAKE_SOURCE_DIR}/tools/cmake/BuildId.cmake
                    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} BYPRODUCTS ${out} COMMENT "")
  target_sources(${target} PRIVATE ${out})
  set_source_files_properties(${out} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_dependencies(${target} build_id)
endfunction()
