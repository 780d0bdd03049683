// Runs one call of the compiled kernel without Python, so that a build for another processor can be tried under an
// emulator. Reads, from a file, lines "number NAME VALUE" and "tensor NAME TYPE STRIDES BYTES" followed by the bytes, and
// writes, to another, what forward pass, backward pass and the functions of a finished call leave, one after the other.
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "kernels.hpp"
#include "run.hpp"

namespace {

struct Given {
    std::map<std::string, double> numbers;
    std::map<std::string, attn::Tensor> tensors;
    std::vector<std::vector<char>> memory;

    int64_t whole(const std::string& name) const { return static_cast<int64_t>(numbers.at(name)); }
    attn::Tensor tensor(const std::string& name) const {
        const auto found = tensors.find(name);
        return found == tensors.end() ? attn::Tensor() : found->second;
    }
};

Given read(const char* path) {
    Given given;
    std::ifstream file(path, std::ios::binary);
    for (std::string kind, name; file >> kind >> name;) {
        if (kind == "number") {
            file >> given.numbers[name];
            continue;
        }
        attn::Tensor& t = given.tensors[name];
        int64_t bytes = 0;
        file >> t.type;
        for (int64_t& stride : t.stride) file >> stride;
        file >> bytes;
        file.get();  // the end of the line
        given.memory.emplace_back(static_cast<size_t>(bytes));
        file.read(given.memory.back().data(), bytes);
        t.data = given.memory.back().data();
    }
    return given;
}

attn::Call call_of(const Given& given) {
    attn::Call call;
    call.B = given.whole("B");
    call.H = given.whole("H");
    call.G = given.whole("G");
    call.M = given.whole("M");
    call.N = given.whole("N");
    call.D = given.whole("D");
    call.E = given.whole("E");
    call.scale = static_cast<float>(given.numbers.at("scale"));
    call.softcap = static_cast<float>(given.numbers.at("softcap"));
    call.causal = given.whole("causal") != 0;
    call.offset = given.whole("offset");
    call.left = given.whole("left");
    call.right = given.whole("right");
    call.chunk = given.whole("chunk");
    call.query = given.tensor("query");
    call.key = given.tensor("key");
    call.value = given.tensor("value");
    call.bias = given.tensor("bias");
    call.dense = given.tensor("dense");
    call.padding = given.tensor("padding");
    call.query_segment = given.tensor("query_segment");
    call.key_segment = given.tensor("key_segment");
    call.sinks = reinterpret_cast<const float*>(given.tensor("sinks").data);
    return call;
}

// A contiguous array of these axes.
attn::Tensor filled(std::vector<char>& memory, const attn::Tensor& like, int64_t b, int64_t h, int64_t m, int64_t d) {
    memory.assign(static_cast<size_t>(b * h * m * d) * (like.type == attn::kFloat32 ? 4 : 2), '\xff');
    attn::Tensor t;
    t.data = memory.data();
    t.type = like.type;
    const int64_t strides[4] = {h * m * d, m * d, d, 1};
    for (int i = 0; i < 4; ++i) t.stride[i] = strides[i];
    return t;
}

attn::Tensor rows_of(std::vector<float>& values, const attn::Call& call) {
    attn::Tensor t;
    t.data = reinterpret_cast<char*>(values.data());
    const int64_t strides[4] = {call.H * call.M, call.M, 1, 0};
    for (int i = 0; i < 4; ++i) t.stride[i] = strides[i];
    return t;
}

bool never() { return false; }

template <class T>
void save(std::ofstream& file, const std::vector<T>& values) {
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

void look(const attn::Kernels& kernels, const Given& given, const attn::Call& call, std::vector<float>& logsumexp,
          std::ofstream& file) {
    attn::View view;
    view.logsumexp = rows_of(logsumexp, call);
    view.width = given.whole("width");
    const auto made = [&](attn::Kind kind, int64_t rows, int64_t cols) {
        std::vector<float> out(static_cast<size_t>(call.B * call.H * rows * cols), 0.0f / 0.0f);
        view.out = out.data();
        attn::view(kernels, kind, call, view, 2, never);
        save(file, out);
    };
    view.row_end = call.M;
    view.col_end = call.N;
    made(attn::kReceived, call.N, 1);
    view.vector = given.tensor("over_keys");
    made(attn::kPush, call.M, view.width);
    view.vector = given.tensor("over_queries");
    made(attn::kPull, call.N, view.width);
    view.row_begin = given.whole("row_begin");
    view.row_end = given.whole("row_end");
    view.col_begin = given.whole("col_begin");
    view.col_end = given.whole("col_end");
    made(attn::kTile, view.row_end - view.row_begin, view.col_end - view.col_begin);
    view.R = given.whole("grid_rows");
    view.C = given.whole("grid_cols");
    for (const bool largest : {false, true}) {
        view.largest = largest;
        made(attn::kPool, view.R, view.C);
    }
}

void run(const attn::Kernels& kernels, const Given& given, const char* path) {
    const attn::Call call = call_of(given);
    const auto rows = static_cast<size_t>(call.B * call.H * call.M);
    std::vector<char> output, memory[4];
    std::vector<float> logsumexp(rows), statistics(6 * rows), weights(rows * static_cast<size_t>(call.N)), delta(rows);
    std::vector<int64_t> largest_key(rows);
    attn::Forward forward;
    forward.R = given.whole("R");
    forward.C = given.whole("C");
    std::vector<float> pooled(static_cast<size_t>(call.B * call.H * forward.R * forward.C));
    forward.output = filled(output, call.query, call.B, call.H, call.M, call.E);
    forward.logsumexp = logsumexp.data();
    forward.statistics = statistics.data();
    forward.largest_key = largest_key.data();
    forward.pooled = pooled.data();
    forward.weights = weights.data();
    forward.chosen = call.H;
    forward.row_end = call.M;
    attn::forward(kernels, call, forward, 2, never);

    attn::Backward back;
    back.output = forward.output;
    back.output_gradient = given.tensor("output_gradient");
    back.logsumexp = rows_of(logsumexp, call);
    back.delta = delta.data();
    back.query = filled(memory[0], call.query, call.B, call.H, call.M, call.D);
    back.key = filled(memory[1], call.query, call.B, call.G, call.N, call.D);
    back.value = filled(memory[2], call.query, call.B, call.G, call.N, call.E);
    attn::backward(kernels, call, back, 2, never);

    std::ofstream file(path, std::ios::binary);
    save(file, output);
    save(file, logsumexp);
    save(file, statistics);
    save(file, largest_key);
    save(file, pooled);
    save(file, weights);
    for (int i = 0; i < 3; ++i) save(file, memory[i]);
    look(kernels, given, call, logsumexp, file);
}

}  // namespace

int main(int count, char** arguments) {
    const attn::Kernels* found[4];
    const int kinds = attn::available(found);
    for (int i = 0; count == 4 && i < kinds; ++i)
        if (std::string(found[i]->name) == arguments[1]) {
            run(*found[i], read(arguments[2]), arguments[3]);
            return 0;
        }
    std::cerr << "usage: driver INSTRUCTION_SET INPUT OUTPUT\n";
    return 2;
}
