// The linear layer for sparse rows of input (CSR): the work is the number of meetings of a nonzero input and a connection,
// and nothing looks at columns that no row has. Column pointers and rows are therefore checked as they are read, not all
// of them before: whatever they hold, nothing outside of the arrays is touched.
#pragma once

#include <atomic>

#include "layer.inc.cpp"
#include "parallel.h"

namespace wb::WB_ISA {

// How far ahead of the arithmetic column pointers are fetched, and connections.
constexpr int64_t kPointersAhead = 16, kConnectionsAhead = 6;

template <class T>
struct CsrRows {
    const T* values;
    const int64_t *columns, *starts;  // starts: [batch + 1]
    int64_t batch, nonzeros;

    bool starts_are_good() const {
        if (batch < 0 || starts[0] != 0 || starts[batch] != nonzeros) return false;
        int falls = 0;
        for (int64_t b = 0; b < batch; ++b) falls |= starts[b + 1] < starts[b];
        return !falls;
    }
};

// The connections of a column, [begin, end) within the layer; begin > end where the pointers are no index of the layer.
struct Run {
    int64_t begin, end;
};

template <class T>
WB_INLINE Run run_of(const Layer<T>& layer, int64_t connections, int64_t column) {
    const uint64_t first = static_cast<uint64_t>(layer.colptr[0]);
    const uint64_t begin = static_cast<uint64_t>(layer.colptr[column]) - first;
    const uint64_t end = static_cast<uint64_t>(layer.colptr[column + 1]) - first;
    if (begin > end || end > static_cast<uint64_t>(connections)) return Run{1, 0};
    return Run{static_cast<int64_t>(begin), static_cast<int64_t>(end)};
}

// Fetches what the nonzeros behind number i will read.
template <class T>
WB_INLINE void fetch_ahead(const CsrRows<T>& rows, const Layer<T>& layer, int64_t connections, int64_t i, const T* theta) {
    if (i + kPointersAhead < rows.nonzeros) {
        const int64_t far = rows.columns[i + kPointersAhead];
        if (far >= 0 && far < layer.n_in) __builtin_prefetch(layer.colptr + far);
    }
    if (i + kConnectionsAhead < rows.nonzeros) {
        const int64_t near = rows.columns[i + kConnectionsAhead];
        if (near < 0 || near >= layer.n_in) return;
        const int64_t begin = run_of(layer, connections, near).begin;
        __builtin_prefetch(layer.packed_rows + begin);
        __builtin_prefetch(theta + begin);
    }
}

// One row of the batch: y = bias + sum of value * weight.
template <class T>
static int csr_row_forward(const CsrRows<T>& rows, const Layer<T>& layer, int64_t connections, int bound, int64_t b,
                           const T* bias, T* y) {
    for (int64_t r = 0; r < layer.n_out; ++r) y[r] = bias ? bias[r] : T(0);
    for (int64_t i = rows.starts[b]; i < rows.starts[b + 1]; ++i) {
        fetch_ahead(rows, layer, connections, i, layer.theta);
        const int64_t column = rows.columns[i];
        if (column < 0 || column >= layer.n_in) return WB_BAD_INPUT;
        const Run run = run_of(layer, connections, column);
        if (run.begin > run.end) return WB_BAD_INDEX;
        const T value = rows.values[i];
        for (int64_t k = run.begin; k < run.end; ++k) {
            const int64_t row = row_of(layer.packed_rows[k]);
            if (row >= layer.n_out) return WB_BAD_INDEX;
            if (bound && layer.theta[k] < 0) return WB_DORMANT;
            y[row] += value * with_sign(layer.theta[k], layer.packed_rows[k]);
        }
    }
    return WB_FINE;
}

template <class T>
static int entry_csr_forward(const T* values, const int64_t* columns, const int64_t* starts, int64_t batch,
                             int64_t nonzeros, T* y, int64_t n_in, int64_t n_out, int64_t connections,
                             const int64_t* colptr, const int32_t* packed_rows, const T* theta, int bound, const T* bias,
                             int threads) {
    const CsrRows<T> rows{values, columns, starts, batch, nonzeros};
    const Layer<T> layer{n_in, n_out, colptr, packed_rows, theta};
    if (!rows.starts_are_good()) return WB_BAD_INPUT;
    constexpr int64_t kRowsAtOnce = 8;
    const int64_t chunks = (batch + kRowsAtOnce - 1) / kRowsAtOnce;
    if (nonzeros * 8 + batch * n_out < kParallelWork) threads = 1;
    std::atomic<int> fault{WB_FINE};
    parallel_for(threads, chunks, [&](int64_t chunk) {
        const int64_t end = std::min(batch, (chunk + 1) * kRowsAtOnce);
        for (int64_t b = chunk * kRowsAtOnce; b < end && fault == WB_FINE; ++b)
            if (const int found = csr_row_forward(rows, layer, connections, bound, b, bias, y + b * n_out)) fault = found;
    });
    return fault;
}

// Every chunk goes through all nonzeros and takes its own columns, so a connection belongs to one chunk and its sum runs
// over the rows of the batch in their order, whatever the number of threads.
template <class T>
static int entry_csr_backward(const T* values, const int64_t* columns, const int64_t* starts, int64_t batch,
                              int64_t nonzeros, const T* dy, int64_t dy_stride, T* dtheta, int64_t n_in, int64_t n_out,
                              int64_t connections, const int64_t* colptr, const int32_t* packed_rows, uint8_t* seen,
                              int64_t* newly_seen, int threads) {
    const CsrRows<T> rows{values, columns, starts, batch, nonzeros};
    const Layer<T> layer{n_in, n_out, colptr, packed_rows, nullptr};
    if (!rows.starts_are_good()) return WB_BAD_INPUT;
    if (dtheta) std::fill(dtheta, dtheta + connections, T(0));
    const int64_t chunks = nonzeros * 8 < kParallelWork || threads < 1 ? 1 : threads;
    std::atomic<int> fault{WB_FINE};
    std::atomic<int64_t> fresh{0};
    parallel_for(threads, chunks, [&](int64_t chunk) {
        int64_t found_fresh = 0;
        for (int64_t b = 0; b < batch && fault == WB_FINE; ++b) {
            const T* upstream = dy + b * dy_stride;
            for (int64_t i = starts[b]; i < starts[b + 1]; ++i) {
                const int64_t column = columns[i];
                if (column < 0 || column >= n_in) {
                    fault = WB_BAD_INPUT;
                    return;
                }
                if (chunks > 1 && (column >> 4) % chunks != chunk) continue;
                const T value = values[i];
                if (seen && value != T(0) && !seen[column]) seen[column] = 1, ++found_fresh;
                if (!dtheta) continue;
                fetch_ahead(rows, layer, connections, i, static_cast<const T*>(dtheta));
                const Run run = run_of(layer, connections, column);
                bool good = run.begin <= run.end;
                for (int64_t k = run.begin; good && k < run.end; ++k) {
                    const int64_t row = row_of(packed_rows[k]);
                    if ((good = row < n_out)) dtheta[k] += with_sign(value * upstream[row], packed_rows[k]);
                }
                if (!good) {
                    fault = WB_BAD_INDEX;
                    return;
                }
            }
        }
        fresh += found_fresh;
    });
    if (newly_seen) *newly_seen = fresh;
    return fault;
}

}  // namespace wb::WB_ISA
