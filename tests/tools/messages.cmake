# What the command says about itself and about arguments that make no sense, in three lines.
# Included by tests/CMakeLists.txt.
quanta_add_command_test("quanta --version: the revision and oneDNN's version and the instructions"
  "^quanta ${PROJECT_VERSION}.*oneDNN [0-9]+[.][0-9]+[.][0-9]+\ninstructions [a-z0-9_]+\n$" --version)
foreach(limit IN ITEMS SSE41 AVX2 AVX512_CORE)
  set(test "quanta --version: oneDNN's limit ${limit} holds all kernels down")
  set(sets_SSE41 "plain")
  set(sets_AVX2 "(plain|avx2)")
  set(sets_AVX512_CORE "(plain|avx2|avx512)")
  quanta_add_command_test("${test}" "\ninstructions ${sets_${limit}}\n$" --version)
  set_property(TEST "tools/${test}" APPEND PROPERTY ENVIRONMENT "ONEDNN_MAX_CPU_ISA=${limit}")
endforeach()
quanta_add_command_test("quanta: a missing command is told"
  "^quanta: a command is missing\nexpected: one of demo, inspect, .*\nsee: quanta --help\n$")
quanta_add_command_test("quanta: the nearest command is named"
  "^quanta: there is no command quantise\nexpected: quantize .the nearest., or one of demo, .*\nsee: quanta --help\n$"
  quantise)
quanta_add_command_test("quanta: a command that is near to none is told what there is"
  "^quanta: there is no command xyzzy\nexpected: one of demo, [^\n]*\nsee: quanta --help\n$" xyzzy)
quanta_add_command_test("quanta: the nearest option is named"
  "^quanta bench: the argument --bacth is not known\nexpected: --batch INT [^\n]*Inputs at a time .the nearest.\nsee: quanta bench --help\n$"
  bench --bacth 3)
quanta_add_command_test("quanta: an option that is near to none is told what there is"
  "^quanta info: the argument --xyzzyxyzzy is not known\nexpected: one of --help, --onnx\nsee: quanta info --help\n$"
  info --xyzzyxyzzy)
quanta_add_command_test("quanta: the nearest option of the command itself is named"
  "^quanta: the argument --verison is not known\nexpected: --version: Print the versions .the nearest.\nsee: quanta --help\n$"
  --verison)
quanta_add_command_test("quanta: an argument too many is told"
  "^quanta bench: the argument 2 is one too many\nexpected: nothing more, or options\nsee: quanta bench --help\n$"
  bench --batch 1 2)
quanta_add_command_test("quanta: an option that another one needs is told"
  "^quanta profile: --calib requires --weights\nexpected: --weights FILE: Float weights [^\n]*\nsee: quanta profile --help\n$"
  profile --calib "${CMAKE_CURRENT_LIST_FILE}")
quanta_add_command_test("quanta: a value out of range is told with what was expected"
  "^quanta profile: --batch: [^\n]*0[^\n]*\nexpected: --batch INT in .1 - 4096.: Inputs at a time\nsee: quanta profile --help\n$"
  profile --batch 0)
quanta_add_command_test("quanta: a word that an option does not know is told with the words"
  "^quanta demo: --model: [^\n]*lenet[^\n]*\nexpected: --model [^\n]*fashion_resnet,fashion_mobilenet[^\n]*\nsee: quanta demo --help\n$"
  demo --model lenet)
quanta_add_command_test("quanta: an option without its value is told"
  "^quanta bench: --seconds: [^\n]*\nexpected: --seconds FLOAT [^\n]*\nsee: quanta bench --help\n$"
  bench --seconds)
quanta_add_command_test("quanta: a file that is not there is told"
  "^quanta inspect: file: [^\n]*nothing.onnx\nexpected: file FILE: The file\nsee: quanta inspect --help\n$"
  inspect nothing.onnx)
quanta_add_command_test("quanta: a missing argument is told"
  "^quanta quantize: file is required\nexpected: file FILE: The float ONNX file\nsee: quanta quantize --help\n$"
  quantize --out x.onnx)
quanta_add_command_test("quanta: options that exclude each other are told"
  "^quanta demo: [^\n]*excludes[^\n]*\nexpected: --[^\n]*\nsee: quanta demo --help\n$"
  demo --format fp8 --save x)
quanta_add_command_test("quanta: an option that a command refuses later leads to its help"
  "--dtype: expected float32 or int8 for resnet18.*\nsee: quanta bench --help\n$"
  bench --model resnet18 --dtype dynamic-int8)
quanta_add_command_test("quanta info: the instructions in use"
  "instructions: [a-z0-9_]+\nvector targets: " info)
add_test(NAME "tools/quanta: a mistake in the arguments ends with status 2"
         COMMAND sh -c "\"$<TARGET_FILE:quanta_cli>\" bench --batch none; test $? = 2")

# A model that the command saves, and what it tells of it.
set(quanta_saved_model "${CMAKE_CURRENT_BINARY_DIR}/saved_mlp.safetensors")
quanta_add_command_test("quanta bench: saves a model"
  "median .* ms" bench --model mlp --seconds 0.001 --dtype int8 --save "${quanta_saved_model}")
set_tests_properties("tools/quanta bench: saves a model" PROPERTIES FIXTURES_SETUP quanta_saved_model)
quanta_add_command_test("quanta inspect: modules and scales of a saved model"
  "a saved model: 5 modules differ.*module +form +scale +zero point +weight.*fc1 +LinearReLU +[0-9.e-]+ +[0-9]+ +qint8, 1024 scales along axis 0: .*fused into others: relu1.*tensors, "
  inspect "${quanta_saved_model}")
set_tests_properties("tools/quanta inspect: modules and scales of a saved model"
                     PROPERTIES FIXTURES_REQUIRED quanta_saved_model)

# Completion, as the shell asks for it.
foreach(case IN ITEMS "qua=quantize" "bench --mod=--model" "bench --model resnet1=resnet18"
                      "completion b=bash" "demo --format fp=fp8" "evaluate --im=--images"
                      "calibrate --observer his=histogram" "train --acc=--accumulate"
                      "train --optimizer ad=adamw")
  string(REPLACE "=" ";" parts "${case}")
  list(GET parts 0 line)
  list(GET parts 1 expected)
  add_test(NAME "tools/quanta completion: ${line}"
           COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/tools/complete.sh" "$<TARGET_FILE:quanta_cli>"
                   ${line} ${expected})
  set_property(TEST "tools/quanta completion: ${line}" PROPERTY LABELS completion)
endforeach()
quanta_add_command_test("quanta completion: zsh has commands and options with their values"
  "#compdef quanta.*'profile:Tell where.*--batch.Inputs at a time.:value:.*--model.The network.:value:.resnet18 "
  completion zsh)
