// Custom operators for onnxruntime that run the partitions of a model on oneDNN.
//
// One library for every model: what each call computes stands in a plan, which `dpl kernels plan`
// writes, and which the entry "dpl.plan" of the session's configuration names. Everything belongs to
// the session options that the library is registered with; nothing is looked up globally, so models
// do not meet. Built by `dpl kernels build`; see docs/kernels.md.

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "interfaces.h"

#ifndef DPL_LAST_KIND  // the greatest number of an operator that dpl knows
#define DPL_LAST_KIND 76
#endif
#ifndef DPL_SOURCE  // a digest of this source and of what it was compiled with
#define DPL_SOURCE ""
#endif
#ifndef DPL_DNNL_LIBRARY
#define DPL_DNNL_LIBRARY "libdnnl.so.3"
#endif

namespace {

using Shape = std::vector<int64_t>;
using Version = std::array<int64_t, 3>;
constexpr int64_t kOpen = -1;  // a size that differs from run to run

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string dotted(const Version& v) {
  return std::to_string(v[0]) + "." + std::to_string(v[1]) + "." + std::to_string(v[2]);
}

std::string written(const Shape& shape) {
  std::string text = "(";
  for (size_t at = 0; at < shape.size(); ++at) {
    text += (at ? ", " : "") + (shape[at] < 0 ? "?" : std::to_string(shape[at]));
  }
  return text + ")";
}

bool is_known(const Shape& shape) {
  for (int64_t size : shape) {
    if (size < 0) return false;
  }
  return true;
}

int64_t count_of(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

// -- the plan -----------------------------------------------------------------------------------------

struct Setting {
  int key;
  char kind;  // b, i, f, s
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::string text;
};

struct PlanOp {
  std::string name;
  int kind;
  std::vector<size_t> inputs;
  size_t output;
  std::vector<Setting> settings;
};

struct PlanInput {
  size_t value;
  bool is_constant;
  bool has_rank;
  Shape shape;
};

struct Number {
  Shape shape;
  std::string data;
};

// An attribute that the call has to have: a plan for another one would compute something else.
struct Attribute {
  std::string name, kind;  // int, ints, float, floats, string
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::string text;
};

struct Call {
  size_t number = 0;  // its place among all calls of the plan
  std::vector<Attribute> attributes;
  std::map<size_t, int> dtypes;
  std::vector<PlanInput> inputs;
  std::map<size_t, Shape> views;
  std::map<size_t, std::string> fixed;  // constants whose numbers the plan depends on
  std::map<size_t, Number> numbers;
  std::vector<PlanOp> ops;
  std::vector<size_t> outputs;
  std::vector<size_t> ends;  // what has to be made though operators read it
  size_t parts = 1;  // into how many parts oneDNN may split it
  bool is_region = false;
  bool needs_elements = false;  // whether oneDNN fails, or worse, where an input is empty
  int math = 0;                 // dnnl_fpmath_mode_t that products may have
  int64_t fewest_rows = 0;      // from so many rows on, so that packing them pays
};

struct Function {
  std::string domain, name;
  std::vector<int> inputs, outputs;  // element types, as onnxruntime numbers them
  std::map<std::string, Call> calls;
  bool has_steps = false;  // whether some call multiplies 8-bit numbers
};

struct Fault {
  Version first, mended;
  bool is_of_steps;  // of 8-bit products alone
  int isa;           // on CPUs with one of these bits of dnnl_cpu_isa_t; 0 for all
  std::string what;
};

struct Plan {
  Version oldest{};
  std::vector<Fault> faults;
  bool is_inexact = false;  // whether 8-bit products may be inexact
  bool is_hosted = false;   // whether the program runs the calls itself: nothing is said of them
  std::vector<Function> functions;
  size_t calls = 0;
};

size_t bytes_of(int dtype) {  // dnnl_data_type_t
  switch (dtype) {
    case 1:
    case 2:
      return 2;
    case 3:
    case 4:
      return 4;
    default:
      return 1;
  }
}

class Line {
 public:
  explicit Line(const std::string& text) : stream_(text) {}

  std::string word() {
    std::string text;
    if (!(stream_ >> text)) throw Failure("something is missing");
    return text;
  }

  // A name, in which all but plain characters are %XX.
  std::string name() {
    const std::string text = word();
    std::string found;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '%') {
        found += text[at];
        continue;
      }
      found += byte(text, at + 1);
      at += 2;
    }
    return found;
  }

  int64_t number() {
    const std::string text = word();
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    if (errno || end == text.c_str() || *end) throw Failure("'" + text + "' is no number");
    return value;
  }

  size_t id() {
    const int64_t value = number();
    if (value < 0) throw Failure("a negative number");
    return static_cast<size_t>(value);
  }

  template <class T>
  std::vector<T> several(T (Line::*one)()) {
    std::vector<T> found;
    for (size_t left = id(); left > 0; --left) found.push_back((this->*one)());
    return found;
  }

  int small() { return static_cast<int>(number()); }

  // A float, as its bits: texts of floats differ by locale.
  float real() {
    const std::string data = bytes();
    float value;
    if (data.size() != sizeof value) throw Failure("a float of another size");
    std::memcpy(&value, data.data(), sizeof value);
    return value;
  }

  std::string bytes() {
    const std::string text = word();
    std::string data;
    if (text == "-") return data;
    if (text.size() % 2) throw Failure("an odd number of digits");
    data.reserve(text.size() / 2);
    for (size_t at = 0; at < text.size(); at += 2) data += byte(text, at);
    return data;
  }

  Shape shape() {
    Shape found = several(&Line::number);
    if (found.size() > kMostDims) throw Failure("more dimensions than oneDNN has");
    return found;
  }

  void end() {
    std::string rest;
    if (stream_ >> rest) throw Failure("'" + rest + "' is too much");
  }

 private:
  static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    throw Failure("no hexadecimal digit");
  }

  static char byte(const std::string& text, size_t at) {
    if (at + 1 >= text.size()) throw Failure("a digit is missing");
    return static_cast<char>(digit(text[at]) * 16 + digit(text[at + 1]));
  }

  std::istringstream stream_;
};

class Reader {
 public:
  Plan read(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw Failure("the plan " + path + " cannot be read: " + std::strerror(errno));
    return read(file, path);
  }

  Plan read(std::istream& file, const std::string& path) {
    std::string text;
    for (size_t at = 1; std::getline(file, text); ++at) {
      try {
        if (at == 1 && text != "dpl-plan 4") throw Failure("this is no plan of this version of dpl");
        if (at == 1 || text.empty() || text[0] == '#') continue;
        if (is_whole_) throw Failure("something follows the end");
        Line line(text);
        take(line.word(), line);
        line.end();
      } catch (const std::exception& error) {
        throw Failure(path + ":" + std::to_string(at) + ": " + error.what());
      }
    }
    if (!is_whole_) throw Failure(path + ": the end of the plan is missing");
    return std::move(plan_);
  }

 private:
  void take(const std::string& what, Line& line) {
    if (what == "oldest") {
      plan_.oldest = version(line);
    } else if (what == "faulty") {
      const Version first = version(line), mended = version(line);
      plan_.faults.push_back({first, mended, line.number() != 0, line.small(), line.name()});
    } else if (what == "inexact") {
      plan_.is_inexact = true;
    } else if (what == "hosted") {
      plan_.is_hosted = true;
    } else if (what == "function") {
      finish();
      Function made{line.name(), line.name(), {}, {}, {}};
      made.has_steps = line.number() != 0;
      made.inputs = line.several(&Line::small);
      made.outputs = line.several(&Line::small);
      plan_.functions.push_back(std::move(made));
      call_ = nullptr;
    } else if (what == "call") {
      finish();
      if (plan_.functions.empty()) throw Failure("a call without a function");
      call_ = &plan_.functions.back().calls[line.name()];
      call_->number = plan_.calls++;
    } else if (what == "end") {
      finish();
      is_whole_ = true;
    } else if (call_ == nullptr) {
      throw Failure("'" + what + "' without a call");
    } else {
      take_of_call(what, line, *call_);
    }
  }

  static Version version(Line& line) {
    Version found{};
    for (int64_t& part : found) part = line.number();
    return found;
  }

  static void take_of_call(const std::string& what, Line& line, Call& call) {
    if (what == "attribute") {
      call.attributes.push_back(attribute(line));
    } else if (what == "value") {
      const size_t id = line.id();
      call.dtypes[id] = line.small();
    } else if (what == "input") {
      PlanInput input{line.id(), line.number() != 0, line.number() != 0, {}};
      input.shape = line.shape();
      call.inputs.push_back(std::move(input));
    } else if (what == "view") {
      const size_t id = line.id();
      call.views[id] = line.shape();
      if (!is_known(call.views[id])) throw Failure("a view of open sizes");
    } else if (what == "fixed") {
      const size_t id = line.id();
      call.fixed[id] = line.bytes();
    } else if (what == "number") {
      const size_t id = known(call, line.id());
      Number number{line.shape(), line.bytes()};
      const size_t size = bytes_of(call.dtypes.at(id)) * static_cast<size_t>(count_of(number.shape));
      if (!is_known(number.shape) || number.data.size() != size) {
        throw Failure("a number of another size than its shape");
      }
      call.numbers[id] = std::move(number);
    } else if (what == "op") {
      PlanOp op{line.name(), line.small(), line.several(&Line::id), line.id(), {}};
      if (op.kind < 0 || op.kind > DPL_LAST_KIND) throw Failure("no operator has this number");
      for (size_t id : op.inputs) known(call, id);
      known(call, op.output);
      call.ops.push_back(std::move(op));
    } else if (what == "set") {
      if (call.ops.empty()) throw Failure("a setting without an operator");
      call.ops.back().settings.push_back(setting(line));
    } else if (what == "ends") {
      call.ends = line.several(&Line::id);
      for (size_t id : call.ends) known(call, id);
    } else if (what == "outputs") {
      call.outputs = line.several(&Line::id);
      for (size_t id : call.outputs) known(call, id);
    } else if (what == "parts") {
      call.parts = line.id();
    } else if (what == "region") {
      call.is_region = true;
    } else if (what == "elements") {
      call.needs_elements = true;
    } else if (what == "math") {
      call.math = line.small();
      call.fewest_rows = line.number();
    } else {
      throw Failure("'" + what + "' is not known");
    }
  }

  static size_t known(const Call& call, size_t id) {
    if (!call.dtypes.count(id)) throw Failure("value " + std::to_string(id) + " is not known");
    return id;
  }

  static Attribute attribute(Line& line) {
    Attribute made{line.name(), line.word(), {}, {}, {}};
    if (made.kind == "int" || made.kind == "ints") {
      made.ints = line.several(&Line::number);
    } else if (made.kind == "float" || made.kind == "floats") {
      made.floats = line.several(&Line::real);
    } else {
      made.text = line.bytes();
    }
    return made;
  }

  static Setting setting(Line& line) {
    Setting made{line.small(), line.word()[0], {}, {}, {}};
    if (made.kind == 'b' || made.kind == 'i') {
      made.ints = line.several(&Line::number);
    } else if (made.kind == 'f') {
      made.floats = line.several(&Line::real);
    } else {
      made.text = line.name();
    }
    if (made.kind == 'b' && made.ints.size() != 1) throw Failure("a truth of several");
    return made;
  }

  // Check what belongs together, when all of a call is there.
  void finish() const {
    if (call_ == nullptr || plan_.is_hosted) return;
    const Function& function = plan_.functions.back();
    if (call_->inputs.size() != function.inputs.size() ||
        call_->outputs.size() != function.outputs.size()) {
      throw Failure("a call before has another number of inputs or outputs than its function");
    }
    for (const PlanInput& input : call_->inputs) known(*call_, input.value);
  }

  Plan plan_;
  Call* call_ = nullptr;
  bool is_whole_ = false;
};

// -- oneDNN -------------------------------------------------------------------------------------------

void check(const char* function, int status) {
  if (status) throw Failure(std::string(function) + " returned status " + std::to_string(status));
}

#define CALL(library, function, ...) check(#function, (library).function(__VA_ARGS__))

// The library, loaded, with an engine. It stays loaded: its threads may outlive a session.
struct Library {
#define X(name, parameters) int(*name) parameters = nullptr;
  DNNL_FUNCTIONS(X)
#undef X
  std::string name;
  void* engine = nullptr;
  // Whether products of matrices are slow where rows lie far apart, and convolutions are not. For x86
  // with AVX2 at most, oneDNN has no blocked product. The plain one takes up to three times as long
  // where rows of the result are a multiple of 2 KiB apart: few sets of the cache hold them all.
  bool has_slow_products = false;
  bool takes_steps = false;  // whether 8-bit products are right here, and harm nothing
  bool has_bf16 = false;     // whether products of bfloat16 are quicker than those of float32
  int threads = 0;           // how many it may take; 0 for as many as OpenMP says
  void (*limit_threads)(int) = nullptr;
  int (*count_threads)() = nullptr;

  Library(const std::vector<std::string>& candidates, const Plan& plan, int most) {
    void* handle = nullptr;
    std::string path, reasons;
    for (const std::string& each : candidates) {
      handle = dlopen(each.c_str(), RTLD_NOW | RTLD_LOCAL);
      path = each;
      if (handle) break;
      reasons += (reasons.empty() ? "" : "; ") + std::string(dlerror());
    }
    if (!handle) {
      throw Failure("oneDNN was not found: " + reasons +
                    "; name a libdnnl.so.3 in DPL_DNNL_LIBRARY, or in the configuration entry dpl.library");
    }
    using Ask = const DnnlVersion* (*)();
    const auto ask = reinterpret_cast<Ask>(dlsym(handle, "dnnl_version"));
    if (!ask) throw Failure(path + " is no oneDNN");
    const DnnlVersion* stated = ask();
    const Version version{stated->major, stated->minor, stated->patch};
    name = "oneDNN " + dotted(version);
    if (version < plan.oldest) {
      throw Failure(path + " is " + name + "; needed is " + dotted(plan.oldest) + " or later");
    }
    const auto isa = reinterpret_cast<int (*)()>(dlsym(handle, "dnnl_get_effective_cpu_isa"));
    const int found = isa ? isa() : 0;
    has_bf16 = found & kAmx;
    takes_steps = plan.is_inexact || !(found & kX86) || (found & kVnni);
    for (const Fault& fault : plan.faults) {
      if (version < fault.first || version >= fault.mended || (fault.isa && !(fault.isa & found))) continue;
      if (!fault.is_of_steps) {
        throw Failure(path + " is " + name + ", which is known to be faulty: " + fault.what);
      }
      takes_steps = false;
    }
#define X(function, parameters)                                                       \
  this->function = reinterpret_cast<decltype(this->function)>(dlsym(handle, #function)); \
  if (!this->function) throw Failure(path + " (" + name + ") has no " #function);
    DNNL_FUNCTIONS(X)
#undef X
    has_slow_products = (found & kAvx2) && !(found & kAvx512);
    CALL(*this, dnnl_engine_create, &engine, kCpu, 0);
    int is_kept = 0;
    CALL(*this, dnnl_graph_get_constant_tensor_cache, &is_kept);
    // Asked again, oneDNN 3.7 forgets the weights that it has kept.
    if (!is_kept) CALL(*this, dnnl_graph_set_constant_tensor_cache, 1);
    // It may take the code of a partition for that of another that is like it, with the weights that
    // it has kept if they lay at the same address.
    CALL(*this, dnnl_graph_set_compiled_partition_cache_capacity, 0);
    limit_threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "omp_set_num_threads"));
    count_threads = reinterpret_cast<int (*)()>(dlsym(handle, "omp_get_max_threads"));
    if (limit_threads && count_threads) threads = std::max(most, 0);
  }
};

// Keeps a limit of threads while it lives. OpenMP has a number for each thread that asks; a thread
// of the program's may use OpenMP for other work, too.
class Limited {
 public:
  explicit Limited(const Library& dnnl) : dnnl_(dnnl), before_(dnnl.threads ? dnnl.count_threads() : 0) {
    if (before_) dnnl_.limit_threads(dnnl_.threads);
  }
  Limited(const Limited&) = delete;
  ~Limited() {
    if (before_) dnnl_.limit_threads(before_);
  }

 private:
  const Library& dnnl_;
  int before_;
};

// Something of oneDNN's that is destroyed with its owner.
class Owned {
 public:
  Owned() = default;
  Owned(void* handle, int (*destroy)(void*)) : handle_(handle), destroy_(destroy) {}
  Owned(Owned&& other) noexcept { *this = std::move(other); }
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~Owned() {
    if (handle_) destroy_(handle_);
  }
  void* get() const { return handle_; }

 private:
  void* handle_ = nullptr;
  int (*destroy_)(void*) = nullptr;
};

template <class Create, class... Rest>
Owned created(const char* what, Create create, int (*destroy)(void*), Rest... rest) {
  void* handle = nullptr;
  check(what, create(&handle, rest...));
  return Owned(handle, destroy);
}

#define MAKE(library, thing, ...) \
  created(#thing, (library).thing##_create, (library).thing##_destroy, ##__VA_ARGS__)

using Tensors = std::map<size_t, LogicalTensor>;
using Shapes = std::map<size_t, Shape>;

std::vector<LogicalTensor> ports(const Library& dnnl, void* partition, bool is_input) {
  size_t count = 0;
  if (is_input) {
    CALL(dnnl, dnnl_graph_partition_get_input_ports_num, partition, &count);
  } else {
    CALL(dnnl, dnnl_graph_partition_get_output_ports_num, partition, &count);
  }
  std::vector<LogicalTensor> found(count);
  if (is_input) {
    CALL(dnnl, dnnl_graph_partition_get_input_ports, partition, count, found.data());
  } else {
    CALL(dnnl, dnnl_graph_partition_get_output_ports, partition, count, found.data());
  }
  return found;
}

// The numbers of the operators of a partition, in order.
std::vector<size_t> operators(const Library& dnnl, void* partition) {
  size_t count = 0;
  CALL(dnnl, dnnl_graph_partition_get_op_num, partition, &count);
  std::vector<size_t> numbers(count);
  CALL(dnnl, dnnl_graph_partition_get_ops, partition, count, numbers.data());
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

bool contains(const std::vector<size_t>& ids, size_t id) {
  for (size_t each : ids) {
    if (each == id) return true;
  }
  return false;
}

bool is_set(const PlanOp& op, int key) {
  for (const Setting& each : op.settings) {
    if (each.key == key) return each.ints[0] != 0;
  }
  return false;
}

// A call as a graph of oneDNN, with the shapes that are known, and its partitions.
class Graph {
 public:
  Tensors tensors;
  std::vector<Owned> partitions;

  Graph(const Library& dnnl, const Call& call, const std::vector<bool>& constant,
        const Shapes& shapes)
      : dnnl_(dnnl), call_(call), shapes_(shapes) {
    for (size_t at = 0; at < call.inputs.size(); ++at) {
      if (constant[at]) constant_.push_back(call.inputs[at].value);
    }
    const Owned graph = created("dnnl_graph_graph", dnnl.dnnl_graph_graph_create_with_fpmath_mode,
                                dnnl.dnnl_graph_graph_destroy, kCpu, math());
    try {
      for (size_t at = 0; at < call.ops.size(); ++at) add(graph.get(), at, call.ops[at]);
      end(graph.get());
      CALL(dnnl, dnnl_graph_graph_finalize, graph.get());
      CALL(dnnl, dnnl_graph_graph_filter, graph.get(), kFusion);
    } catch (const Failure& error) {
      throw Failure(std::string("oneDNN refuses it: ") + error.what());
    }
    size_t count = 0;
    CALL(dnnl, dnnl_graph_graph_get_partition_num, graph.get(), &count);
    std::vector<void*> handles(count);
    CALL(dnnl, dnnl_graph_graph_get_partitions, graph.get(), count, handles.data());
    for (void* each : handles) {
      Owned partition(each, dnnl.dnnl_graph_partition_destroy);
      const bool is_end = operators(dnnl, each).front() >= call.ops.size();
      if (!is_end) partitions.push_back(std::move(partition));
    }
    object();
  }

 private:
  // The floating-point mode: products of few rows stay as they are.
  int math() const {
    if (!dnnl_.has_bf16) return 0;
    for (const PlanOp& op : call_.ops) {
      if (op.kind != kMatmul) {
        if (op.kind == kConvolution || op.kind == kConvTranspose) return call_.math;
        continue;
      }
      const auto rows = shapes_.find(op.inputs[0]);
      if (rows == shapes_.end() || !is_known(rows->second)) return call_.math;
      int64_t count = 1;
      for (size_t at = 0; at + 1 < rows->second.size(); ++at) count *= rows->second[at];
      if (is_set(op, kTransposeA) || count >= call_.fewest_rows) return call_.math;
    }
    return 0;
  }

  void object() const {
    if (partitions.size() > call_.parts && !call_.is_region) {
      std::string all;
      for (const Owned& each : partitions) all += (all.empty() ? "" : ", ") + names(each.get());
      throw Failure("oneDNN would run it in " + std::to_string(partitions.size()) + " parts: " + all);
    }
    for (const Owned& each : partitions) {
      uint8_t answer = 0;
      CALL(dnnl_, dnnl_graph_partition_is_supported, each.get(), &answer);
      if (!answer) throw Failure("oneDNN has no implementation of " + names(each.get()));
    }
  }

  std::string names(void* partition) const {
    std::string all;
    for (size_t number : operators(dnnl_, partition)) {
      if (number < call_.ops.size()) all += (all.empty() ? "" : "+") + call_.ops[number].name;
    }
    return all;
  }

  void add(void* graph, size_t id, const PlanOp& op) {
    const std::string name = op.name + "_" + std::to_string(id);
    const Owned made = MAKE(dnnl_, dnnl_graph_op, id, op.kind, name.c_str());
    try {
      for (const Setting& each : op.settings) set(made.get(), each);
      for (size_t value : op.inputs) CALL(dnnl_, dnnl_graph_op_add_input, made.get(), tensor(value));
      CALL(dnnl_, dnnl_graph_op_add_output, made.get(), tensor(op.output));
      CALL(dnnl_, dnnl_graph_add_op, graph, made.get());
    } catch (const Failure& error) {
      throw Failure(op.name + ": " + error.what());
    }
  }

  // Say which values have to be made though operators read them.
  void end(void* graph) {
    size_t id = call_.ops.size();
    for (size_t value : call_.ends) {
      const Owned made = MAKE(dnnl_, dnnl_graph_op, id, kEnd, ("op_" + std::to_string(id)).c_str());
      CALL(dnnl_, dnnl_graph_op_add_input, made.get(), tensor(value));
      CALL(dnnl_, dnnl_graph_add_op, graph, made.get());
      ++id;
    }
  }

  void set(void* op, const Setting& s) const {
    if (s.kind == 'b') {
      const uint8_t value = s.ints[0] != 0;
      CALL(dnnl_, dnnl_graph_op_set_attr_bool, op, s.key, &value, 1);
    } else if (s.kind == 'i') {
      CALL(dnnl_, dnnl_graph_op_set_attr_s64, op, s.key, s.ints.data(), s.ints.size());
    } else if (s.kind == 'f') {
      CALL(dnnl_, dnnl_graph_op_set_attr_f32, op, s.key, s.floats.data(), s.floats.size());
    } else {
      CALL(dnnl_, dnnl_graph_op_set_attr_str, op, s.key, s.text.c_str(), s.text.size());
    }
  }

  const LogicalTensor* tensor(size_t id) {
    const auto [place, is_new] = tensors.emplace(id, LogicalTensor{});
    if (!is_new) return &place->second;
    const int dtype = call_.dtypes.at(id);
    const auto number = call_.numbers.find(id);
    const bool is_constant = number != call_.numbers.end() || contains(constant_, id);
    const int property = is_constant ? kConstant : kVarying;
    const auto known = shapes_.find(id);
    if (number == call_.numbers.end() && known == shapes_.end()) {
      CALL(dnnl_, dnnl_graph_logical_tensor_init, &place->second, id, dtype, kUnknownRank, kAnyLayout,
           property);
      return &place->second;
    }
    const Shape& shape = number == call_.numbers.end() ? known->second : number->second.shape;
    Shape strides(shape.size());
    int64_t step = 1;
    for (size_t at = shape.size(); at-- > 0;) {
      strides[at] = step;
      step *= shape[at] > 0 ? shape[at] : 1;
    }
    CALL(dnnl_, dnnl_graph_logical_tensor_init_with_strides, &place->second, id, dtype,
         static_cast<int>(shape.size()), shape.data(), strides.data(), property);
    return &place->second;
  }

  const Library& dnnl_;
  const Call& call_;
  const Shapes& shapes_;
  std::vector<size_t> constant_;
};

Shape dims_of(const LogicalTensor& tensor) { return Shape(tensor.dims, tensor.dims + tensor.ndims); }

// Within these bounds, which were measured with oneDNN 3.2 and AVX2, a product by constant weights takes
// 0.35 to 1.05 times as long if it is a convolution of width one, and outside up to 3 times.
constexpr int64_t kFewestRows = 16, kLongestSum = 2048, kStep = 512;

// A partition of a call, with a product by constant weights as a convolution of width one.
struct Rewritten {
  Owned partition;
  size_t weights;
  LogicalTensor tensor;  // the weights as the convolution reads them
};

// Write a partition so, if oneDNN is quicker at it. The answer has no partition otherwise.
Rewritten with_convolution(const Library& dnnl, const Call& call, const std::vector<bool>& constant,
                           void* partition, const Tensors& known) {
  Rewritten none{{}, 0, {}};
  if (!dnnl.has_slow_products) return none;
  std::vector<PlanOp> ops;
  PlanOp* product = nullptr;
  for (size_t number : operators(dnnl, partition)) ops.push_back(call.ops.at(number));
  for (PlanOp& op : ops) {
    if (op.kind != kMatmul) continue;
    if (product) return none;
    product = &op;
  }
  if (!product || is_set(*product, kTransposeA)) return none;
  const size_t data = product->inputs[0], weights = product->inputs[1];
  Shapes given;
  for (const LogicalTensor& port : ports(dnnl, partition, true)) {
    given[port.id] = dims_of(known.at(port.id));
  }
  if (!given.count(data) || !given.count(weights)) return none;
  const Shape rows = given[data], sizes = given[weights];
  bool is_constant = call.numbers.count(weights);
  for (size_t at = 0; at < call.inputs.size(); ++at) {
    is_constant |= call.inputs[at].value == weights && constant[at];
  }
  std::ptrdiff_t uses = 0;
  for (const PlanOp& op : call.ops) uses += std::count(op.inputs.begin(), op.inputs.end(), weights);
  if (!is_constant || uses != 1 || rows.size() < 3 || rows.size() > 5 || sizes.size() != 2 ||
      call.dtypes.at(weights) != kFloat32 || known.at(data).layout_type != kStrided) {
    return none;
  }
  const bool is_turned = is_set(*product, kTransposeB);
  const int64_t made = sizes[is_turned ? 0 : 1], summed = sizes[is_turned ? 1 : 0];
  const int64_t count_of_rows = count_of(rows) / std::max<int64_t>(rows.back(), 1);
  if (made % kStep || summed > kLongestSum || count_of_rows < kFewestRows) return none;
  const size_t inner = rows.size() - 2;
  const auto numbers_of = [&](int64_t each) { return std::vector<int64_t>(inner, each); };
  product->kind = kConvolution;
  product->settings = {{kStrides, 'i', numbers_of(1), {}, ""},
                       {kPadsBegin, 'i', numbers_of(0), {}, ""},
                       {kPadsEnd, 'i', numbers_of(0), {}, ""},
                       {kDilations, 'i', numbers_of(1), {}, ""},
                       {kGroups, 'i', {1}, {}, ""},
                       {kDataFormat, 's', {}, {}, "NXC"},
                       {kWeightsFormat, 's', {}, {}, is_turned ? "OIX" : "XIO"}};
  Shape shaped = sizes;
  shaped.insert(is_turned ? shaped.end() : shaped.begin(), inner, 1);
  given[weights] = shaped;
  Call written;
  written.dtypes = call.dtypes;
  written.inputs = call.inputs;
  written.ops = std::move(ops);
  written.math = call.math;
  written.fewest_rows = call.fewest_rows;
  for (const auto& [id, number] : call.numbers) {
    if (given.count(id)) written.numbers[id] = {id == weights ? shaped : number.shape, ""};
  }
  try {
    Graph graph(dnnl, written, constant, given);
    if (graph.partitions.size() != 1) return none;
    return {std::move(graph.partitions[0]), weights, graph.tensors.at(weights)};
  } catch (const Failure&) {
    return none;
  }
}

// A call as code, for one set of shapes.
class Compiled {
 public:
  std::vector<Shape> outputs;
  size_t memory = 0;  // so many bytes inner values take in a run

  Compiled(const Library& dnnl, const Call& call, const std::vector<bool>& constant,
           const Shapes& shapes)
      : dnnl_(dnnl), call_(call) {
    Graph graph(dnnl, call, constant, shapes);
    for (const auto& [id, tensor] : graph.tensors) {
      if (shapes.count(id) || call.numbers.count(id)) known_[id] = tensor;
    }
    while (!graph.partitions.empty()) {
      bool is_stuck = true;
      for (size_t at = 0; at < graph.partitions.size(); ++at) {
        if (!compile(graph.partitions[at].get(), constant)) continue;
        graph.partitions.erase(graph.partitions.begin() + static_cast<std::ptrdiff_t>(at));
        is_stuck = false;
        break;
      }
      if (is_stuck) throw Failure("its parts wait for each other");
    }
    for (size_t id : call.outputs) {
      outputs.push_back(dims_of(known_.at(id)));
    }
    lay_out();
  }

  // Compute nothing: all results are empty.
  Compiled(const Library& dnnl, const Call& call, std::vector<Shape> made)
      : outputs(std::move(made)), dnnl_(dnnl), call_(call) {}

  // Run; data of inputs and outputs in the order of the call, and memory for inner values. Several
  // threads may do so at once.
  void run(const std::vector<void*>& inputs, const std::vector<void*>& outputs, void* memory) {
    std::unique_ptr<Execution> execution;
    {
      const std::lock_guard<std::mutex> guard(lock_);
      if (!idle_.empty()) {
        execution = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (!execution) execution = std::make_unique<Execution>(*this);
    for (size_t at = 0; at < inputs.size(); ++at) {
      bind(*execution, call_.inputs[at].value, inputs[at]);
    }
    for (size_t at = 0; at < outputs.size(); ++at) bind(*execution, call_.outputs[at], outputs[at]);
    for (const auto& [id, place] : places_) {
      bind(*execution, id, static_cast<char*>(memory) + offsets_[place]);
    }
    for (size_t at = 0; at < steps_.size(); ++at) {
      const auto& [given, made] = execution->bound[at];
      CALL(dnnl_, dnnl_graph_compiled_partition_execute, steps_[at].code.get(),
           execution->stream.get(), given.size(), const_cast<const void**>(given.data()), made.size(),
           const_cast<const void**>(made.data()));
    }
    CALL(dnnl_, dnnl_stream_wait, execution->stream.get());
    const std::lock_guard<std::mutex> guard(lock_);
    idle_.push_back(std::move(execution));
  }

 private:
  struct Step {
    Owned code;
    std::vector<size_t> inputs, outputs;
  };

  // What one run needs for itself.
  struct Execution {
    using Handles = std::vector<void*>;
    std::map<size_t, Owned> tensors;
    std::vector<std::pair<Handles, Handles>> bound;
    Owned stream;

    explicit Execution(const Compiled& of) {
      for (const auto& [id, tensor] : of.known_) {
        void* data = nullptr;
        const auto number = of.call_.numbers.find(id);
        if (number != of.call_.numbers.end()) data = const_cast<char*>(number->second.data.data());
        tensors[id] = MAKE(of.dnnl_, dnnl_graph_tensor, &tensor, of.dnnl_.engine, data);
      }
      for (const Step& step : of.steps_) bound.emplace_back(all(step.inputs), all(step.outputs));
      stream = MAKE(of.dnnl_, dnnl_stream, of.dnnl_.engine, static_cast<unsigned>(kInOrder));
    }

    Handles all(const std::vector<size_t>& ids) const {
      Handles found;
      for (size_t id : ids) found.push_back(tensors.at(id).get());
      return found;
    }
  };

  void bind(Execution& execution, size_t id, void* data) const {
    const auto tensor = execution.tensors.find(id);
    if (tensor == execution.tensors.end()) return;  // an input that nothing reads
    CALL(dnnl_, dnnl_graph_tensor_set_data_handle, tensor->second.get(), data);
  }

  bool is_outer(size_t id) const {
    for (const PlanInput& input : call_.inputs) {
      if (input.value == id) return true;
    }
    return contains(call_.outputs, id);
  }

  // Find a place for each inner value. What is not read any more makes room for what comes next, so
  // that little memory is touched: it stays in the caches. Where oneDNN can compute in place, as with
  // a residual that it adds to, the value takes the place of what it is made from.
  void lay_out() {
    std::map<size_t, size_t> last;
    for (size_t at = 0; at < steps_.size(); ++at) {
      for (size_t id : steps_[at].inputs) last[id] = at;
      for (size_t id : steps_[at].outputs) last[id] = at;
    }
    std::vector<size_t> free;
    for (size_t at = 0; at < steps_.size(); ++at) {
      std::vector<size_t> dying;
      for (size_t id : steps_[at].inputs) {
        if (places_.count(id) && last[id] == at && !contains(dying, id)) dying.push_back(id);
      }
      size_t count = 0;
      const InplacePair* pairs = nullptr;
      CALL(dnnl_, dnnl_graph_compiled_partition_get_inplace_ports, steps_[at].code.get(), &count, &pairs);
      for (size_t n = 0; n < count; ++n) {
        const auto source = std::find(dying.begin(), dying.end(), pairs[n].input_id);
        if (source == dying.end() || is_outer(pairs[n].output_id)) continue;
        places_[pairs[n].output_id] = places_[*source];
        dying.erase(source);
      }
      for (size_t id : steps_[at].outputs) {
        if (!is_outer(id) && !places_.count(id)) places_[id] = place_of(size_of(id), free);
      }
      for (size_t id : dying) free.push_back(places_[id]);
    }
    for (size_t size : sizes_) {
      offsets_.push_back(memory);
      memory += (size / kAligned + 1) * kAligned;
    }
  }

  size_t size_of(size_t id) const {
    size_t size = 0;
    CALL(dnnl_, dnnl_graph_logical_tensor_get_mem_size, &known_.at(id), &size);
    return size;
  }

  // Take the smallest free place that is large enough, else the largest, made larger, or a new one.
  size_t place_of(size_t size, std::vector<size_t>& free) {
    const auto is_better = [&](size_t one, size_t other) {
      const size_t a = sizes_[one], b = sizes_[other];
      return (a >= size) == (b >= size) ? (a >= size ? a < b : a > b) : a >= size;
    };
    const auto best = std::min_element(free.begin(), free.end(), is_better);
    const size_t found = best == free.end() ? sizes_.size() : *best;
    if (best == free.end()) {
      sizes_.push_back(0);
    } else {
      free.erase(best);
    }
    sizes_[found] = std::max(sizes_[found], size);
    return found;
  }

  // Compile a partition if all that it reads is known; what it makes then is, too.
  bool compile(void* partition, const std::vector<bool>& constant) {
    for (const LogicalTensor& port : ports(dnnl_, partition, true)) {
      if (!known_.count(port.id)) return false;
    }
    const Rewritten rewritten = with_convolution(dnnl_, call_, constant, partition, known_);
    if (rewritten.partition.get()) {
      const LogicalTensor weights = std::exchange(known_[rewritten.weights], rewritten.tensor);
      try {
        add_step(rewritten.partition.get(), true);
        return true;
      } catch (const std::exception&) {  // oneDNN has the product, and not the convolution
        known_[rewritten.weights] = weights;
      }
    }
    add_step(partition, false);
    return true;
  }

  // Compile a partition; what it makes is laid out as oneDNN likes if it is inner and not plain.
  void add_step(void* partition, bool is_plain) {
    Step step;
    std::vector<const LogicalTensor*> given, wanted;
    for (const LogicalTensor& port : ports(dnnl_, partition, true)) {
      step.inputs.push_back(port.id);
      given.push_back(&known_.at(port.id));
    }
    std::vector<LogicalTensor> made = ports(dnnl_, partition, false);
    for (LogicalTensor& port : made) {
      const size_t id = port.id;
      const int layout = is_plain || contains(call_.outputs, id) ? kStrided : kAnyLayout;
      CALL(dnnl_, dnnl_graph_logical_tensor_init, &port, id, call_.dtypes.at(id), kUnknownRank, layout,
           kVarying);
      step.outputs.push_back(id);
      wanted.push_back(&port);
    }
    step.code = MAKE(dnnl_, dnnl_graph_compiled_partition, partition);
    const int status = dnnl_.dnnl_graph_partition_compile(
        partition, step.code.get(), given.size(), given.data(), wanted.size(), wanted.data(), dnnl_.engine);
    if (status) throw Failure("oneDNN does not compile it: status " + std::to_string(status));
    for (size_t id : step.outputs) {
      CALL(dnnl_, dnnl_graph_compiled_partition_query_logical_tensor, step.code.get(), id, &known_[id]);
    }
    steps_.push_back(std::move(step));
  }

  const Library& dnnl_;
  const Call& call_;
  Tensors known_;
  std::vector<Step> steps_;
  std::map<size_t, size_t> places_;  // of inner values: which buffer
  std::vector<size_t> sizes_;        // of buffers
  std::vector<size_t> offsets_;      // where they begin in the memory of a run
  std::mutex lock_;
  std::vector<std::unique_ptr<Execution>> idle_;
};

// -- onnxruntime --------------------------------------------------------------------------------------

void check(const OrtApi* api, OrtStatus* status) {
  if (!status) return;
  const std::string message = ort::GetErrorMessage(api)(status);
  ort::ReleaseStatus(api)(status);
  throw Failure(message);
}

OrtStatus* failure(const OrtApi* api, const std::string& message) {
  return ort::CreateStatus(api)(kOrtFail, ("dpl: " + message).c_str());
}

Shape shape_of(const OrtApi* api, const OrtValue* value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api, ort::GetTensorTypeAndShape(api)(value, &info));
  size_t rank = 0;
  OrtStatus* status = ort::GetDimensionsCount(api)(info, &rank);
  Shape shape(status ? 0 : rank);
  if (!status) status = ort::GetDimensions(api)(info, shape.data(), rank);
  ort::ReleaseTensorTypeAndShapeInfo(api)(info);
  check(api, status);
  return shape;
}

void* data_of(const OrtApi* api, const OrtValue* value) {
  void* data = nullptr;
  check(api, ort::GetTensorMutableData(api)(const_cast<OrtValue*>(value), &data));
  return data;
}

// Memory for one run, from onnxruntime, which has given the same to the calls before: so it is in the
// caches. Regions that kept memory of their own were slower than their parts.
std::shared_ptr<void> memory_for(const OrtApi* api, OrtKernelContext* context, size_t size) {
  if (!size) return {};
  OrtMemoryInfo* kind = nullptr;
  check(api, ort::CreateCpuMemoryInfo(api)(kArenaAllocator, kDefaultMemory, &kind));
  OrtAllocator* found = nullptr;
  OrtStatus* status = ort::KernelContext_GetAllocator(api)(context, kind, &found);
  ort::ReleaseMemoryInfo(api)(kind);
  check(api, status);
  const std::shared_ptr<OrtAllocator> allocator(found, ort::ReleaseAllocator(api));
  void* data = nullptr;
  check(api, ort::AllocatorAlloc(api)(found, size, &data));
  return {data, [api, allocator](void* taken) { ort::AllocatorFree(api)(allocator.get(), taken); }};
}

// Ask twice, as onnxruntime's C interface wants it: for the size, and for the content.
template <class T, class Ask>
std::vector<T> sized(const OrtApi* api, Ask ask) {
  size_t count = 0;
  OrtStatus* status = ask(static_cast<T*>(nullptr), &count);
  std::vector<T> found(count);
  if (status && count == 0) check(api, status);
  if (status) ort::ReleaseStatus(api)(status);  // says that there was no room
  if (count) check(api, ask(found.data(), &count));
  return found;
}

template <class Ask>
std::string text(const OrtApi* api, Ask ask) {
  const std::vector<char> found = sized<char>(api, ask);
  return std::string(found.begin(), found.empty() ? found.end() : found.end() - 1);
}

// What dpl looks at while a session of its own runs: whether the calls are to be said on standard
// output, among what oneDNN says of them, and how often each has run.
using Record = std::atomic<int64_t>;
thread_local Record* next_record = nullptr;  // for the next registration in this thread

// What runs the calls of a hosted plan: functions of the program, dpl's in Python for GPUs. Shapes are
// a rank and sizes, one after the other. All but a kernel's number return 0 for success; why something
// failed the program knows itself.
struct Host {
  int64_t (*create)(int64_t call, const uint8_t* constant);  // a kernel, or -1
  int (*prepare)(int64_t kernel, const int64_t* inputs, int64_t* outputs);
  int (*run)(int64_t kernel, void* const* inputs, void* const* outputs);
};
thread_local const Host* next_host = nullptr;  // for the next registration in this thread

// All that belongs to session options. They keep pointers to it and do not say when they go, so it is
// never freed; what is large belongs to the kernels, which go with their session.
struct Registration {
  struct Operator : OrtCustomOp {
    const Registration* registration = nullptr;
    const Function* function = nullptr;
  };

  const OrtApi* api;
  Plan plan;
  std::unique_ptr<Library> dnnl;  // none for a hosted plan
  Record* record;
  const Host* host;
  std::vector<std::unique_ptr<Operator>> operators;

  Registration(const OrtApi* api, Plan read, const std::vector<std::string>& candidates, int threads)
      : api(api),
        plan(std::move(read)),
        dnnl(plan.is_hosted ? std::unique_ptr<Library>()
                            : std::make_unique<Library>(candidates, plan, threads)),
        record(std::exchange(next_record, nullptr)),
        host(std::exchange(next_host, nullptr)) {
    if (plan.is_hosted && !host) throw Failure("the plan is for dpl itself");
    for (const Function& function : plan.functions) {
      if (function.has_steps && !dnnl->takes_steps) continue;  // onnxruntime runs its body
      operators.push_back(std::make_unique<Operator>());
      fill(*operators.back(), function);
    }
  }

  void fill(Operator& op, const Function& function);
};

const Call* call_of(const OrtApi* api, const Function& function, const OrtKernelInfo* info,
                    std::string* name) {
  *name = text(api, [&](char* place, size_t* size) {
    return ort::KernelInfo_GetNodeName(api)(info, place, size);
  });
  const auto found = function.calls.find(*name);
  if (found == function.calls.end()) {
    throw Failure("the plan has no call of " + function.domain + "::" + function.name + " named '" +
                  *name + "': it was made for another model");
  }
  return &found->second;
}

// What runs one call of a session on oneDNN.
class Kernel {
 public:
  Kernel(const Registration& of, const Function& function, const OrtKernelInfo* info)
      : api_(of.api), dnnl_(*of.dnnl), record_(of.record) {
    call_ = call_of(api_, function, info, &name_);
    const Limited limited(dnnl_);
    try {
      for (const Attribute& each : call_->attributes) compare(info, each);
      for (size_t at = 0; at < call_->inputs.size(); ++at) look_at(info, at);
      // What oneDNN takes for constant it computes once: a call of constants alone would be empty.
      if (std::find(constant_.begin(), constant_.end(), false) == constant_.end()) {
        constant_.assign(constant_.size(), false);
      }
      bool is_all_known = true;
      Shapes known;
      for (size_t at = 0; at < call_->inputs.size(); ++at) {
        const PlanInput& input = call_->inputs[at];
        const auto view = call_->views.find(input.value);
        const bool is_view = view != call_->views.end();
        const bool is_open = !constant_[at] && !(input.has_rank && is_known(input.shape));
        if (is_view || !is_open) known[input.value] = is_view ? view->second : shapes_[at];
        is_all_known = is_all_known && !is_open;
      }
      if (is_all_known) {
        compiled_[shapes_] = std::make_unique<Compiled>(dnnl_, *call_, constant_, known);
      } else {
        Graph(dnnl_, *call_, constant_, known);
      }
    } catch (const Failure& error) {
      throw Failure("'" + name_ + "': " + error.what() + "; make the plan from this model, with the " +
                    "oneDNN that runs it: dpl kernels plan");
    }
  }

  const OrtApi* api() const { return api_; }

  void compute(OrtKernelContext* context) {
    const Limited limited(dnnl_);
    try {
      std::vector<void*> inputs, outputs;
      std::vector<Shape> shapes;
      for (size_t at = 0; at < call_->inputs.size(); ++at) {
        const OrtValue* value = nullptr;
        check(api_, ort::KernelContext_GetInput(api_)(context, at, &value));
        inputs.push_back(data_of(api_, value));
        shapes.push_back(constant_[at] ? shapes_[at] : shape_of(api_, value));
        if (!constant_[at]) check_fixed(at, inputs.back(), shapes.back());
      }
      Compiled& code = compiled_for(shapes);
      for (size_t at = 0; at < code.outputs.size(); ++at) {
        const Shape& shape = code.outputs[at];
        OrtValue* value = nullptr;
        check(api_, ort::KernelContext_GetOutput(api_)(context, at, shape.data(), shape.size(), &value));
        outputs.push_back(data_of(api_, value));
      }
      const bool is_told = record_ && record_[0];
      if (is_told) std::printf("dpl,call,%zu\n", call_->number);
      code.run(inputs, outputs, memory_for(api_, context, code.memory).get());
      if (is_told) std::printf("dpl,call,\n");
      if (record_) ++record_[1 + call_->number];
    } catch (const std::exception& error) {
      throw Failure("'" + name_ + "': " + error.what());
    }
  }

 private:
  void compare(const OrtKernelInfo* info, const Attribute& wanted) const {
    const char* name = wanted.name.c_str();
    bool is_equal = false;
    try {
      if (wanted.kind == "int") {
        int64_t value = 0;
        check(api_, ort::KernelInfoGetAttribute_int64(api_)(info, name, &value));
        is_equal = wanted.ints == std::vector<int64_t>{value};
      } else if (wanted.kind == "float") {
        float value = 0;
        check(api_, ort::KernelInfoGetAttribute_float(api_)(info, name, &value));
        is_equal = wanted.floats == std::vector<float>{value};
      } else if (wanted.kind == "ints") {
        is_equal = wanted.ints == sized<int64_t>(api_, [&](int64_t* place, size_t* size) {
          return ort::KernelInfoGetAttributeArray_int64(api_)(info, name, place, size);
        });
      } else if (wanted.kind == "floats") {
        is_equal = wanted.floats == sized<float>(api_, [&](float* place, size_t* size) {
          return ort::KernelInfoGetAttributeArray_float(api_)(info, name, place, size);
        });
      } else {
        is_equal = wanted.text == text(api_, [&](char* place, size_t* size) {
          return ort::KernelInfoGetAttribute_string(api_)(info, name, place, size);
        });
      }
    } catch (const Failure&) {  // it has no such attribute
    }
    if (!is_equal) throw Failure("its attribute " + wanted.name + " is not that of the plan");
  }

  // Ask whether an input is constant, and whether it is what the plan was made for. More may be
  // constant here than in the plan: what onnxruntime has computed beforehand.
  void look_at(const OrtKernelInfo* info, size_t at) {
    const PlanInput& input = call_->inputs[at];
    int is_constant = 0;
    const OrtValue* value = nullptr;
    check(api_, ort::KernelInfoGetConstantInput_tensor(api_)(info, at, &is_constant, &value));
    constant_.push_back(is_constant != 0 && value != nullptr);
    shapes_.push_back(constant_.back() ? shape_of(api_, value) : input.shape);
    if (!constant_.back()) return;
    const Shape& shape = shapes_.back();
    if (input.is_constant && shape != input.shape) {
      throw Failure("its input " + std::to_string(at) + " has the shape " + written(shape) +
                    ", in the plan " + written(input.shape));
    }
    check_fixed(at, data_of(api_, value), shape);
  }

  void check_fixed(size_t at, const void* data, const Shape& shape) const {
    const size_t id = call_->inputs[at].value;
    const auto fixed = call_->fixed.find(id);
    if (fixed == call_->fixed.end()) return;
    const std::string& wanted = fixed->second;
    const size_t count = static_cast<size_t>(count_of(shape));
    const bool is_as_long = count_of(call_->inputs[at].shape) == static_cast<int64_t>(count);
    if (!is_as_long || (count && std::memcmp(data, wanted.data(), wanted.size()) != 0)) {
      throw Failure("its input " + std::to_string(at) + " holds other numbers than the plan");
    }
  }

  Compiled& compiled_for(const std::vector<Shape>& shapes) {
    const std::lock_guard<std::mutex> guard(lock_);
    auto& found = compiled_[shapes];
    if (found) return *found;
    for (size_t at = 0; at < shapes.size(); ++at) {
      if (call_->needs_elements && count_of(shapes[at]) == 0) {
        found = of_nothing(shapes);
        if (!found) refuse(at, shapes[at]);
        return *found;
      }
    }
    found = compiled_of(shapes);
    return *found;
  }

  [[noreturn]] static void refuse(size_t at, const Shape& shape) {
    throw Failure("its input " + std::to_string(at) + " has the shape " + written(shape) +
                  ", which oneDNN does not take; state it when you partition the model");
  }

  std::unique_ptr<Compiled> compiled_of(const std::vector<Shape>& shapes) const {
    Shapes seen;
    for (size_t at = 0; at < shapes.size(); ++at) {
      const size_t id = call_->inputs[at].value;
      const bool is_known = call_->inputs[at].has_rank || call_->views.count(id);
      if (!is_known && (shapes[at].empty() || shapes[at].size() > kMostDims)) refuse(at, shapes[at]);
      const auto view = call_->views.find(id);
      if (view == call_->views.end()) {
        seen[id] = shapes[at];
      } else if (count_of(view->second) == count_of(shapes[at])) {
        seen[id] = view->second;
      } else {
        throw Failure("its input " + std::to_string(at) + " has the shape " + written(shapes[at]));
      }
    }
    try {
      return std::make_unique<Compiled>(dnnl_, *call_, constant_, seen);
    } catch (const Failure& error) {
      std::string all;
      for (const Shape& shape : shapes) all += " " + written(shape);
      throw Failure(std::string(error.what()) + ", for inputs of shapes" + all);
    }
  }

  // What oneDNN would get wrong where an input is empty need not be computed if all results are empty,
  // too, as those of an expert that gets no token. Their sizes are read off the results for 1, 2 and 3
  // in the place of 0. Return nothing if results have elements, or if their sizes do not grow evenly.
  std::unique_ptr<Compiled> of_nothing(const std::vector<Shape>& shapes) const {
    std::vector<std::vector<Shape>> made;
    for (const int64_t size : {1, 2, 3}) {
      std::vector<Shape> filled = shapes;
      for (size_t at = 0; at < filled.size(); ++at) {
        if (!constant_[at]) std::replace(filled[at].begin(), filled[at].end(), int64_t{0}, size);
      }
      try {
        made.push_back(compiled_of(filled)->outputs);
      } catch (const std::exception&) {  // a sum over no elements, say: its weights have none either
        return nullptr;
      }
    }
    std::vector<Shape> outputs = made[0];
    for (size_t at = 0; at < outputs.size(); ++at) {
      for (size_t axis = 0; axis < outputs[at].size(); ++axis) {
        const int64_t step = made[1][at][axis] - made[0][at][axis];
        if (made[2][at][axis] - made[1][at][axis] != step) return nullptr;
        outputs[at][axis] -= step;
      }
      if (count_of(outputs[at]) != 0) return nullptr;
    }
    return std::make_unique<Compiled>(dnnl_, *call_, outputs);
  }

  const OrtApi* api_;
  const Library& dnnl_;
  Record* record_;
  std::string name_;
  const Call* call_ = nullptr;
  std::vector<bool> constant_;  // in this session
  std::vector<Shape> shapes_;   // of inputs: those of constants, and what the plan says of others
  std::mutex lock_;
  std::map<std::vector<Shape>, std::unique_ptr<Compiled>> compiled_;
};

// What has one call of a session run by the program.
class HostedKernel {
 public:
  HostedKernel(const Registration& of, const Function& function, const OrtKernelInfo* info)
      : api_(of.api), host_(*of.host), inputs_(function.inputs.size()), outputs_(function.outputs.size()) {
    std::string name;
    const Call* call = call_of(api_, function, info, &name);
    std::vector<uint8_t> constant;
    for (size_t at = 0; at < inputs_; ++at) {
      int is_constant = 0;
      const OrtValue* value = nullptr;
      check(api_, ort::KernelInfoGetConstantInput_tensor(api_)(info, at, &is_constant, &value));
      constant.push_back(is_constant && value);
    }
    kernel_ = host_.create(static_cast<int64_t>(call->number), constant.data());
    if (kernel_ < 0) throw Failure("'" + name + "' is not created");
  }

  const OrtApi* api() const { return api_; }

  void compute(OrtKernelContext* context) {
    std::vector<void*> inputs, outputs;
    Shape given, made(outputs_ * (1 + kMostDims));
    for (size_t at = 0; at < inputs_; ++at) {
      const OrtValue* value = nullptr;
      check(api_, ort::KernelContext_GetInput(api_)(context, at, &value));
      inputs.push_back(data_of(api_, value));
      const Shape shape = shape_of(api_, value);
      given.push_back(static_cast<int64_t>(shape.size()));
      given.insert(given.end(), shape.begin(), shape.end());
    }
    if (host_.prepare(kernel_, given.data(), made.data())) throw Failure("a kernel is not prepared");
    const int64_t* shape = made.data();
    for (size_t at = 0; at < outputs_; ++at) {
      OrtValue* value = nullptr;
      const size_t rank = static_cast<size_t>(*shape++);
      check(api_, ort::KernelContext_GetOutput(api_)(context, at, shape, rank, &value));
      outputs.push_back(data_of(api_, value));
      shape += rank;
    }
    if (host_.run(kernel_, inputs.data(), outputs.data())) throw Failure("a kernel failed");
  }

 private:
  const OrtApi* api_;
  const Host& host_;
  size_t inputs_, outputs_;
  int64_t kernel_ = -1;
};

const Registration::Operator& as_operator(const OrtCustomOp* op) {
  return *static_cast<const Registration::Operator*>(op);
}

template <class Kernel>
OrtStatus* create_kernel(const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo* info, void** out) {
  const Registration& of = *as_operator(op).registration;
  try {
    *out = new Kernel(of, *as_operator(op).function, info);
    return nullptr;
  } catch (const std::exception& error) {
    return failure(of.api, error.what());
  }
}

template <class Kernel>
OrtStatus* compute_kernel(void* kernel, OrtKernelContext* context) {
  try {
    static_cast<Kernel*>(kernel)->compute(context);
    return nullptr;
  } catch (const std::exception& error) {
    return failure(static_cast<Kernel*>(kernel)->api(), error.what());
  }
}

template <class Kernel>
void run_by(OrtCustomOp& op) {
  op.CreateKernelV2 = create_kernel<Kernel>;
  op.KernelComputeV2 = compute_kernel<Kernel>;
  op.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
}

void Registration::fill(Operator& op, const Function& made) {
  op.registration = this;
  op.function = &made;
  op.version = kOrtVersion;
  op.GetName = [](const OrtCustomOp* op) { return as_operator(op).function->name.c_str(); };
  op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  op.GetInputType = [](const OrtCustomOp* op, size_t at) {
    return as_operator(op).function->inputs[at];
  };
  op.GetInputTypeCount = [](const OrtCustomOp* op) { return as_operator(op).function->inputs.size(); };
  op.GetOutputType = [](const OrtCustomOp* op, size_t at) {
    return as_operator(op).function->outputs[at];
  };
  op.GetOutputTypeCount = [](const OrtCustomOp* op) {
    return as_operator(op).function->outputs.size();
  };
  op.GetInputCharacteristic = [](const OrtCustomOp*, size_t) { return 0; };   // required
  op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return 0; };  // required
  op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return 0; };       // default
  op.GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  if (plan.is_hosted) {
    run_by<HostedKernel>(op);
  } else {
    run_by<Kernel>(op);
  }
}

std::string entry(const OrtApi* api, const OrtSessionOptions* options, const char* key) {
  int is_there = 0;
  check(api, ort::HasSessionConfigEntry(api)(options, key, &is_there));
  if (!is_there) return "";
  return text(api, [&](char* place, size_t* size) {
    return ort::GetSessionConfigEntry(api)(options, key, place, size);
  });
}

std::vector<std::string> libraries(const std::string& stated) {
  if (!stated.empty()) return {stated};
  const char* named = std::getenv("DPL_DNNL_LIBRARY");
  if (named && *named) return {named};
  return {DPL_DNNL_LIBRARY, "libdnnl.so.3", "libdnnl.so.3.6"};  // the last is Debian 13's
}

void register_all(const OrtApi* api, OrtSessionOptions* options) {
  const std::string path = entry(api, options, "dpl.plan");
  if (path.empty()) {
    throw Failure(
        "the session has no configuration entry dpl.plan, the file that dpl kernels plan wrote; add it "
        "before this library is registered");
  }
  const std::string threads = entry(api, options, "dpl.threads");
  auto made = std::make_unique<Registration>(api, Reader().read(path),
                                             libraries(entry(api, options, "dpl.library")),
                                             std::atoi(threads.c_str()));
  std::map<std::string, OrtCustomOpDomain*> domains;
  for (const auto& op : made->operators) {
    OrtCustomOpDomain*& domain = domains[op->function->domain];
    if (!domain) {
      check(api, ort::CreateCustomOpDomain(api)(op->function->domain.c_str(), &domain));
    }
    check(api, ort::CustomOpDomain_Add(api)(domain, op.get()));
  }
  Registration* kept = made.release();  // see there
  (void)kept;
  for (const auto& each : domains) check(api, ort::AddCustomOpDomain(api)(options, each.second));
}

#define EXPORTED extern "C" __attribute__((visibility("default")))

}  // namespace

// For dpl alone. What this library was made of.
EXPORTED const char* dpl_source() { return DPL_SOURCE; }

// For dpl alone. Say where the next session of this thread leaves its record.
EXPORTED void dpl_record(int64_t* cells) {
  static_assert(sizeof(Record) == sizeof(int64_t), "atomic numbers are as large as others");
  next_record = reinterpret_cast<Record*>(cells);
}

// For dpl alone. Say what runs the calls of the next session of this thread.
EXPORTED void dpl_host(const Host* host) { next_host = host; }

// For dpl alone. Ask oneDNN whether it runs the calls of a plan, which are named by numbers; where all
// sizes are known, compile them. Returns a line for each that it does not: the name, and why.
EXPORTED const char* dpl_judge(const char* text, const char* library) {
  static std::string answer;
  answer.clear();
  try {
    std::istringstream stream(text);
    const Plan plan = Reader().read(stream, "the plan");
    const Library dnnl(libraries(library), plan, 0);
    for (const Function& function : plan.functions) {
      for (const auto& [name, call] : function.calls) {
        std::vector<bool> constant;
        Shapes known;
        for (const PlanInput& input : call.inputs) {
          const auto view = call.views.find(input.value);
          const bool is_view = view != call.views.end();
          constant.push_back(input.is_constant);
          if (is_view || (input.has_rank && is_known(input.shape))) {
            known[input.value] = is_view ? view->second : input.shape;
          }
        }
        try {
          Graph(dnnl, call, constant, known);
          if (known.size() == call.inputs.size()) Compiled(dnnl, call, constant, known);
        } catch (const std::exception& error) {
          answer += name + " " + error.what() + "\n";
        }
      }
    }
  } catch (const std::exception& error) {
    answer = std::string("* ") + error.what() + "\n";
  }
  return answer.c_str();
}

EXPORTED OrtStatus* RegisterCustomOps(
    OrtSessionOptions* options, const OrtApiBase* base) {
  const OrtApi* api = base->GetApi(kOrtVersion);
  if (!api) return failure(base->GetApi(1), "onnxruntime 1.16 or later is needed");
  try {
    register_all(api, options);
    return nullptr;
  } catch (const std::exception& error) {
    return failure(api, error.what());
  }
}
