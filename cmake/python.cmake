# SPDX-License-Identifier: MIT
#
# The PyTorch package, as the installation component `python`: reprise/ with the extension, the
# command, the recordings that its demo plans and the libraries that run PyTorch without a GPU, and
# outside of a wheel the Python files too.
#
#     cmake -S . -B BUILD -DREPRISE_PYTHON=ON && cmake --build BUILD --target python
#     cmake --install BUILD --component python --prefix FOLDER_TO_IMPORT_FROM
#
# One extension serves CPython 3.10 and later (the stable ABI) and PyTorch 2.9 and later: nothing of
# PyTorch is needed to build it.

find_package(Python3 COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
if(NOT Python3_Interpreter_FOUND OR Python3_VERSION VERSION_LESS 3.10)
  message(FATAL_ERROR "reprise: the PyTorch package needs Python 3.10 or later, found "
                      "'${Python3_VERSION}' (Python3_EXECUTABLE chooses another)")
endif()
if(NOT Python3_Development.Module_FOUND)
  message(FATAL_ERROR "reprise: Python.h of ${Python3_EXECUTABLE} was not found: install the "
                      "headers of this Python (Debian, Ubuntu: python3-dev)")
endif()

file(GLOB PYTHON_SOURCES CONFIGURE_DEPENDS python/csrc/*.c python/csrc/*/*.c)
add_library(_C MODULE ${PYTHON_SOURCES})
# Not Python3_add_library, which names the file after the Python that builds it.
set_target_properties(_C PROPERTIES PREFIX "" SUFFIX ".abi3.so"
                      LINK_DEPENDS ${CMAKE_SOURCE_DIR}/python/csrc/module.map)
target_compile_definitions(_C PRIVATE Py_LIMITED_API=0x030A0000)
# Before C23 Python.h declares no PyInit function.
target_compile_options(_C PRIVATE -fexceptions -Wno-missing-prototypes)
target_include_directories(_C PRIVATE python/csrc)
target_include_directories(_C SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
target_link_libraries(_C PRIVATE reprise_static)
# Only what is used comes out of the archive, and none of it is seen from outside.
target_link_options(_C PRIVATE "LINKER:--gc-sections"
                    "LINKER:--version-script=${CMAKE_SOURCE_DIR}/python/csrc/module.map")
# Compilers that are not a distribution's may not do so by themselves.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
set_target_properties(cli reprise PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_custom_target(python DEPENDS _C reprise torch_on_host)

set(IN_PACKAGE COMPONENT python EXCLUDE_FROM_ALL)
install(TARGETS _C LIBRARY DESTINATION reprise ${IN_PACKAGE})
install(TARGETS reprise RUNTIME DESTINATION reprise/bin ${IN_PACKAGE})
install(DIRECTORY examples/captures DESTINATION reprise/share/reprise ${IN_PACKAGE})
# What `python -m reprise estimate` starts a process with.
function(install_host folder)
  install(TARGETS ${HOST_LIBRARIES} LIBRARY DESTINATION ${folder}/lib ${IN_PACKAGE})
  install(FILES host/preload.txt host/gpus.txt DESTINATION ${folder}/lib ${IN_PACKAGE})
  install(FILES host/python/sitecustomize.py DESTINATION ${folder}/site ${IN_PACKAGE})
endfunction()
install_host(reprise/_host)
# `pip install -e .` imports the Python files of the tree, which look for the command next to them.
if(SKBUILD_STATE STREQUAL "editable")
  install(TARGETS reprise RUNTIME DESTINATION ${CMAKE_SOURCE_DIR}/python/reprise/bin
          ${IN_PACKAGE})
  install(DIRECTORY examples/captures
          DESTINATION ${CMAKE_SOURCE_DIR}/python/reprise/share/reprise ${IN_PACKAGE})
  install_host(${CMAKE_SOURCE_DIR}/python/reprise/_host)
endif()
if(NOT SKBUILD)
  install(DIRECTORY python/reprise/ DESTINATION reprise ${IN_PACKAGE}
          FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN py.typed
          PATTERN __pycache__ EXCLUDE PATTERN bin EXCLUDE PATTERN share EXCLUDE
          PATTERN lib EXCLUDE PATTERN site EXCLUDE)
endif()

# A wheel that holds other libraries (jansson, zlib) brings their licences.
set(REPRISE_LICENSES "" CACHE PATH "Folder of the licences of what is built in")
if(SKBUILD AND REPRISE_LICENSES)
  install(DIRECTORY ${REPRISE_LICENSES}/ DESTINATION ${SKBUILD_METADATA_DIR}/licenses
          ${IN_PACKAGE})
endif()
