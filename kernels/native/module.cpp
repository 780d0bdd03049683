// The Python module attnviz_kernels._native. Tensors come as (address, type, strides): no torch headers.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.hpp"
#include "run.hpp"

namespace nb = nanobind;

namespace {

using Described = std::array<int64_t, 6>;  // address, type, four strides

attn::Tensor tensor(const Described& from) {
    attn::Tensor out;
    out.data = reinterpret_cast<char*>(static_cast<uintptr_t>(from[0]));
    out.type = static_cast<int>(from[1]);
    for (int i = 0; i < 4; ++i) out.stride[i] = from[static_cast<size_t>(i) + 2];
    return out;
}

template <class T>
T* pointer(int64_t address) {
    return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

std::vector<std::string> instruction_sets() {
    const attn::Kernels* found[4];
    const int count = attn::available(found);
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back(found[i]->name);
    return names;
}

const attn::Kernels& kernels_named(const std::string& name) {
    const attn::Kernels* found[4];
    const int count = attn::available(found);
    for (int i = 0; i < count; ++i)
        if (name == found[i]->name) return *found[i];
    throw std::invalid_argument("this processor cannot run instruction set " + name);
}

// Ctrl-C ends a long call: asked between items, on the calling thread.
bool interrupted() {
    nb::gil_scoped_acquire gil;
    return PyErr_CheckSignals() != 0;
}

void forward(const std::string& isa, int threads, const attn::Call& call, const attn::Forward& out) {
    const attn::Kernels& kernels = kernels_named(isa);
    bool done;
    {
        nb::gil_scoped_release release;
        done = attn::forward(kernels, call, out, threads, interrupted);
    }
    if (!done) throw nb::python_error();
}

void backward(const std::string& isa, int threads, const attn::Call& call, const attn::Backward& out) {
    const attn::Kernels& kernels = kernels_named(isa);
    bool done;
    {
        nb::gil_scoped_release release;
        done = attn::backward(kernels, call, out, threads, interrupted);
    }
    if (!done) throw nb::python_error();
}

void view(const std::string& isa, int threads, int kind, const attn::Call& call, const attn::View& view) {
    const attn::Kernels& kernels = kernels_named(isa);
    bool done;
    {
        nb::gil_scoped_release release;
        done = attn::view(kernels, static_cast<attn::Kind>(kind), call, view, threads, interrupted);
    }
    if (!done) throw nb::python_error();
}

template <class T>
void bind_tensor(nb::class_<T>& to, const char* name, attn::Tensor T::* field) {
    to.def_prop_rw(
        name, [field](const T& self) { return reinterpret_cast<uintptr_t>((self.*field).data); },
        [field](T& self, const Described& from) { self.*field = tensor(from); });
}

template <class T, class Element>
void bind_pointer(nb::class_<T>& to, const char* name, Element* T::* field) {
    to.def_prop_rw(
        name, [field](const T& self) { return reinterpret_cast<uintptr_t>(self.*field); },
        [field](T& self, int64_t address) { self.*field = pointer<Element>(address); });
}

void bind_call(nb::module_& m) {
    using attn::Call;
    nb::class_<Call> call(m, "Call");
    call.def(nb::init<>())
        .def_rw("B", &Call::B).def_rw("H", &Call::H).def_rw("G", &Call::G).def_rw("M", &Call::M)
        .def_rw("N", &Call::N).def_rw("D", &Call::D).def_rw("E", &Call::E)
        .def_rw("scale", &Call::scale).def_rw("softcap", &Call::softcap)
        .def_rw("causal", &Call::causal).def_rw("offset", &Call::offset)
        .def_rw("left", &Call::left).def_rw("right", &Call::right).def_rw("chunk", &Call::chunk);
    bind_tensor(call, "query", &Call::query);
    bind_tensor(call, "key", &Call::key);
    bind_tensor(call, "value", &Call::value);
    bind_tensor(call, "bias", &Call::bias);
    bind_tensor(call, "dense", &Call::dense);
    bind_tensor(call, "padding", &Call::padding);
    bind_tensor(call, "query_segment", &Call::query_segment);
    bind_tensor(call, "key_segment", &Call::key_segment);
    bind_pointer(call, "sinks", &Call::sinks);
}

void bind_forward(nb::module_& m) {
    using attn::Forward;
    nb::class_<Forward> out(m, "Forward");
    out.def(nb::init<>())
        .def_rw("R", &Forward::R).def_rw("C", &Forward::C).def_rw("chosen", &Forward::chosen)
        .def_rw("row_begin", &Forward::row_begin).def_rw("row_end", &Forward::row_end);
    bind_tensor(out, "output", &Forward::output);
    bind_pointer(out, "logsumexp", &Forward::logsumexp);
    bind_pointer(out, "statistics", &Forward::statistics);
    bind_pointer(out, "largest_key", &Forward::largest_key);
    bind_pointer(out, "pooled", &Forward::pooled);
    bind_pointer(out, "weights", &Forward::weights);
    bind_pointer(out, "slot", &Forward::slot);
}

void bind_backward(nb::module_& m) {
    using attn::Backward;
    nb::class_<Backward> out(m, "Backward");
    out.def(nb::init<>());
    bind_tensor(out, "output", &Backward::output);
    bind_tensor(out, "output_gradient", &Backward::output_gradient);
    bind_tensor(out, "logsumexp", &Backward::logsumexp);
    bind_tensor(out, "query", &Backward::query);
    bind_tensor(out, "key", &Backward::key);
    bind_tensor(out, "value", &Backward::value);
    bind_pointer(out, "delta", &Backward::delta);
}

void bind_view(nb::module_& m) {
    using attn::View;
    nb::class_<View> view(m, "View");
    view.def(nb::init<>())
        .def_rw("row_begin", &View::row_begin).def_rw("row_end", &View::row_end)
        .def_rw("col_begin", &View::col_begin).def_rw("col_end", &View::col_end)
        .def_rw("width", &View::width).def_rw("R", &View::R).def_rw("C", &View::C).def_rw("largest", &View::largest);
    bind_tensor(view, "logsumexp", &View::logsumexp);
    bind_tensor(view, "vector", &View::vector);
    bind_pointer(view, "out", &View::out);
    m.attr("TILE") = static_cast<int>(attn::kTile);
    m.attr("POOL") = static_cast<int>(attn::kPool);
    m.attr("PUSH") = static_cast<int>(attn::kPush);
    m.attr("PULL") = static_cast<int>(attn::kPull);
    m.attr("RECEIVED") = static_cast<int>(attn::kReceived);
}

}  // namespace

NB_MODULE(_native, m) {
    bind_call(m);
    bind_forward(m);
    bind_backward(m);
    bind_view(m);
    m.def("isas", &instruction_sets);
    m.def("forward", &forward, nb::arg("isa"), nb::arg("threads"), nb::arg("call"), nb::arg("out"));
    m.def("backward", &backward, nb::arg("isa"), nb::arg("threads"), nb::arg("call"), nb::arg("out"));
    m.def("view", &view, nb::arg("isa"), nb::arg("threads"), nb::arg("kind"), nb::arg("call"), nb::arg("view"));
}
