// The two matrices of a recurrent layer as its time loop reads them: made once in a call, read in every step.
//
// Both kinds of layer have four sums for each hidden unit: i, f, g, o of the LSTM; r, z, the part of n that comes from x
// and the part that comes from h of the GRU. All four of a unit lie together: sum 4 * unit + gate. Both matrices are
// joined: the sources are the inputs and, behind them, the hidden units of the step before.
#pragma once

#include "lane_sums.inc.cpp"
#include "recurrent_panel.inc.cpp"

namespace wb::WB_ISA {

constexpr int64_t kSums = 4;

// A connection: the number of the panel row at its other end, and its weight.
template <class T>
struct Link {
    int32_t row;
    T weight;
};

template <class T>
struct Matrices {
    int64_t hidden;
    Layer<T> ih, hh;
    bool gru;

    Matrices(const wb_recurrent& job)
        : hidden(job.n_hidden),
          ih{job.n_in, (job.kind == WB_GRU ? 3 : 4) * job.n_hidden, job.colptr_ih, job.packed_rows_ih,
             static_cast<const T*>(job.theta_ih)},
          hh{job.n_hidden, ih.n_out, job.colptr_hh, job.packed_rows_hh, static_cast<const T*>(job.theta_hh)},
          gru(job.kind == WB_GRU) {}

    int64_t sources() const { return ih.n_in + hh.n_in; }
    int64_t connections() const { return ih.connections() + hh.connections(); }

    // Calls function(source, sum, weight) for all connections of both, in their order.
    template <class Function>
    WB_INLINE void each(Function&& function) const {
        visit(ih, 0, 2, function);
        visit(hh, ih.n_in, gru ? 3 : 2, function);
    }

private:
    // `third`: which sum the third gate goes to.
    template <class Function>
    WB_INLINE void visit(const Layer<T>& layer, int64_t first_source, int64_t third, Function&& function) const {
        for (int64_t column = 0; column < layer.n_in; ++column) {
            int64_t gate = 0, below = 0;  // rows of a column rise, and with them the gate
            for (int64_t k = layer.begin(column), end = layer.begin(column + 1); k < end; ++k) {
                const int64_t row = row_of(layer.packed_rows[k]);
                while (row >= below + hidden) below += hidden, ++gate;
                const int64_t sum = kSums * (row - below) + (gate == 2 ? third : gate);
                function(first_source + column, sum, with_sign(layer.theta[k], layer.packed_rows[k]));
            }
        }
    }
};

// By sum, for the forward pass: links [first[sum], first[sum + 1]) to sources.
template <class T>
struct LinksBySum {
    int64_t* first;
    Link<T>* links;
};

template <class T>
static LinksBySum<T> links_by_sum(const Matrices<T>& matrices) {
    const int64_t sums = kSums * matrices.hidden, count = matrices.connections();
    char* space = static_cast<char*>(
        scratch(Scratch::recurrent_links, static_cast<size_t>(sums + 2) * sizeof(int64_t) +
                                              static_cast<size_t>(count) * sizeof(Link<T>)));
    LinksBySum<T> found{reinterpret_cast<int64_t*>(space),
                        reinterpret_cast<Link<T>*>(space + static_cast<size_t>(sums + 2) * sizeof(int64_t))};
    // Counted two places on and filled one place on: afterwards each sum's place is its own start.
    std::fill(found.first, found.first + sums + 2, int64_t{0});
    matrices.each([&](int64_t, int64_t sum, T) { ++found.first[sum + 2]; });
    for (int64_t sum = 2; sum <= sums + 1; ++sum) found.first[sum] += found.first[sum - 1];
    matrices.each([&](int64_t source, int64_t sum, T weight) {
        found.links[found.first[sum + 1]++] = Link<T>{static_cast<int32_t>(source), weight};
    });
    return found;
}

// In the order of the wiring, for the backward pass: links to sums. Sources are columns, so Layer says where they start.
template <class T>
static Link<T>* links_by_source(const Matrices<T>& matrices) {
    const size_t count = static_cast<size_t>(matrices.connections());
    Link<T>* links = static_cast<Link<T>*>(scratch(Scratch::recurrent_links, count * sizeof(Link<T>)));
    Link<T>* next = links;
    matrices.each([&](int64_t, int64_t sum, T weight) { *next++ = Link<T>{static_cast<int32_t>(sum), weight}; });
    return links;
}

// start + the sum of weight * source over the links: `Panel::vectors` vectors of samples.
template <class Panel>
WB_INLINE void sum_links(const Link<typename Panel::Number>* link, const Link<typename Panel::Number>* end,
                         typename Panel::Number start, const typename Panel::Number* sources,
                         typename Panel::V* sum) {
    using T = typename Panel::Number;
    using V = typename Panel::V;
    // One connection at a time would wait for the addition before it; several in turn keep the adders busy.
    constexpr int chains = Panel::vectors >= 4 ? 2 : 4;
    V sums[chains][Panel::vectors];
    for (int chain = 0; chain < chains; ++chain)
        for (int i = 0; i < Panel::vectors; ++i) sums[chain][i] = splat<T, Panel::Bytes>(chain == 0 ? start : T(0));
    const auto add = [&](const Link<T>& one, V* to) __attribute__((always_inline)) {
        const V weight = splat<T, Panel::Bytes>(one.weight);
        const T* row = sources + static_cast<int64_t>(one.row) * Panel::W;
        for (int i = 0; i < Panel::vectors; ++i) to[i] += weight * Panel::get(row, i);
    };
    for (; link + chains <= end; link += chains)
        for (int chain = 0; chain < chains; ++chain) add(link[chain], sums[chain]);
    for (; link < end; ++link) add(*link, sums[0]);
    for (int i = 0; i < Panel::vectors; ++i) {
        sum[i] = sums[0][i];
        for (int chain = 1; chain < chains; ++chain) sum[i] += sums[chain][i];
    }
}

// For one source: back = the sum of weight * gradient of the sums it goes to (with Back), and to the gradient of each
// connection is added the source's value times that gradient.
template <class Panel, bool Back>
WB_INLINE void gather_links(const Link<typename Panel::Number>* links, int64_t count,
                            const typename Panel::Number* source, const typename Panel::Number* sums,
                            typename Panel::Number* back, typename Panel::Number* gradient) {
    using T = typename Panel::Number;
    using V = typename Panel::V;
    constexpr int chains = Panel::vectors >= 4 ? 1 : 4 / Panel::vectors;
    V in[Panel::vectors], out[chains][Panel::vectors];
    for (int i = 0; i < Panel::vectors; ++i) {
        in[i] = Panel::get(source, i);
        for (int chain = 0; chain < chains; ++chain) out[chain][i] = V{};
    }
    const auto connection = [&](const Link<T>& one, V* to) __attribute__((always_inline)) {
        const T* row = sums + static_cast<int64_t>(one.row) * Panel::W;
        const V weight = splat<T, Panel::Bytes>(one.weight);
        V product = {};
        for (int i = 0; i < Panel::vectors; ++i) {
            V value = Panel::get(row, i);
            keep(value);
            if constexpr (Back) to[i] += weight * value;
            product = i == 0 ? in[0] * value : product + in[i] * value;
        }
        return product;
    };
    V products[4];
    int64_t k = 0;
    for (; k + 4 <= count; k += 4) {
        for (int i = 0; i < 4; ++i) products[i] = connection(links[k + i], out[i % chains]);
        const Four<T> four = sum_lanes<T, Panel::Bytes>(products) + load<T, sizeof(Four<T>)>(gradient + k);
        store<T, sizeof(Four<T>)>(gradient + k, four);
    }
    if (k < count) {
        const int rest = static_cast<int>(count - k);
        products[1] = products[2] = products[3] = V{};
        products[0] = connection(links[k], out[0]);
        if (rest > 1) products[1] = connection(links[k + 1], out[1 % chains]);
        if (rest > 2) products[2] = connection(links[k + 2], out[2 % chains]);
        const Four<T> four = sum_lanes<T, Panel::Bytes>(products);
        for (int i = 0; i < rest; ++i) gradient[k + i] += four[i];
    }
    if constexpr (Back) {
        for (int i = 0; i < Panel::vectors; ++i) {
            V sum = out[0][i];
            for (int chain = 1; chain < chains; ++chain) sum += out[chain][i];
            Panel::put(back, i, sum);
        }
    }
}

}  // namespace wb::WB_ISA
