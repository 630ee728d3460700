# cmake -D OUT=FILE -P BuildId.cmake: writes the definition of BuildId() (framework/base/build.h) to OUT, unless it stands
# there already. Run at every build, from the root of the sources.
cmake_minimum_required(VERSION 3.25) # the project's policies do not reach a script
file(GLOB_RECURSE sources RELATIVE ${CMAKE_SOURCE_DIR}
     kernels/*.cc kernels/*.h kernels/*.def kernels/*.cu kernels/*.cuh framework/*.cc framework/*.h framework/*.cu
     models/*.cc models/*.h checkpoint/*.cc checkpoint/*.h elastic/*.cc elastic/*.h elastic/*.proto tools/*.cc tools/*.h
     tools/cmake/*.cmake)
list(APPEND sources CMakeLists.txt tools/CMakeLists.txt) # not those that a configuration makes for a moment in build/
list(SORT sources)
set(digests "")
foreach(source ${sources})
  file(SHA256 ${source} digest)
  string(APPEND digests "${source} ${digest}\n")
endforeach()
string(SHA256 id "${digests}")
string(SUBSTRING ${id} 0 16 id)
file(CONFIGURE OUTPUT ${OUT} CONTENT
     "#include \"framework/base/build.h\"\n\nnamespace holdfast {\nconst char* BuildId() { return \"@id@\"; }\n}  // namespace holdfast\n" @ONLY)
