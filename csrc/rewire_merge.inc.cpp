// Rewiring when many connections are replaced at once: survivors and newborns are two sorted lists that merge.
//
// The other way (rewire.inc.cpp) pays for each event, this one for each connection, without a branch that depends on
// where the events are, and with scratch memory as long as a few arrays of the wiring. In a small network a tenth of
// the connections may be replaced in a step.
//
// By the rank formula, a newborn of rank r stands behind the survivors i with position_i - i <= r. So those differences
// are the survivors' keys, the ranks are the newborns' keys, and a tie goes to the survivor.

constexpr int64_t kMergeBudget = int64_t{1} << 20;  // above, the scratch would be worth saving

static bool worth_merging(const RewireTask& task, int64_t n_dead, int64_t columns) {
    return task.budget <= kMergeBudget && n_dead * 64 > task.budget + columns;
}

// How many died in each layer, by the column pointers of before.
static void count_dead(const RewireTask& task, const int64_t* dead, int64_t n_dead, int64_t* died,
                       const RewireScratch& scratch) {
    int64_t t = 0;
    for (int64_t i = 0; i < task.layers; ++i) {
        const RewireLayer& layer = scratch.layers[static_cast<size_t>(i)];
        const int64_t end = task.colptr[layer.first_column + layer.n_in], first = t;
        t = std::lower_bound(dead + t, dead + n_dead, end) - dead;
        died[i] = t - first;
    }
}

// The column of each connection, where the caller does not keep it.
static const int32_t* columns_of(const RewireTask& task, RewireScratch& scratch) {
    if (task.columns) return task.columns;
    scratch.columns.resize(static_cast<size_t>(task.budget));
    const RewireLayer& last = scratch.layers.back();
    for (int64_t c = 0; c < last.first_column + last.n_in; ++c)
        for (int64_t k = task.colptr[c]; k < task.colptr[c + 1]; ++k)
            scratch.columns[static_cast<size_t>(k)] = static_cast<int32_t>(c);
    return scratch.columns.data();
}

// Old index and key of each survivor, in order, with a key behind the last that no rank reaches.
static void list_survivors(const RewireTask& task, const int64_t* dead, int64_t n_dead, const int32_t* columns,
                           RewireScratch& scratch) {
    scratch.alive.assign(static_cast<size_t>(task.budget), 1);
    for (int64_t t = 0; t < n_dead; ++t) scratch.alive[static_cast<size_t>(dead[t])] = 0;
    scratch.survivors.resize(static_cast<size_t>(task.budget) + 1);
    scratch.keys.resize(static_cast<size_t>(task.budget) + 1);
    int32_t* survivors = scratch.survivors.data();
    int64_t* keys = scratch.keys.data();
    int64_t i = 0;
    for (const RewireLayer& layer : scratch.layers) {
        const int64_t end = task.colptr[layer.first_column + layer.n_in];
        const int64_t base = layer.first_position - layer.first_column * layer.n_out;
        for (int64_t k = task.colptr[layer.first_column]; k < end; ++k) {
            survivors[i] = static_cast<int32_t>(k);
            keys[i] = base + columns[k] * layer.n_out + row_of(task.code[k]) - i;
            i += scratch.alive[static_cast<size_t>(k)];
        }
    }
    survivors[i] = 0;
    keys[i] = std::numeric_limits<int64_t>::max();
}

// Ranks within layers become ranks among all dormant positions, with one behind the last that no key reaches.
static void count_ranks_through(const RewireTask& task, const int64_t* born, RewireScratch& scratch) {
    int64_t before = 0, t = 0;
    for (int64_t i = 0; i < task.layers; ++i) {
        for (const int64_t end = t + born[i]; t < end; ++t) scratch.ranks[static_cast<size_t>(t)] += before;
        before += scratch.dormant[static_cast<size_t>(i)];
    }
    scratch.ranks.push_back(std::numeric_limits<int64_t>::max() - 1);
}

// Where each connection of the new order comes from (newborns: from anywhere), and the newborns with their targets.
static void merge_newborns(const RewireTask& task, int64_t n_born, const int64_t* born, RewireScratch& scratch) {
    scratch.source.resize(static_cast<size_t>(task.budget));
    scratch.newborns.resize(static_cast<size_t>(n_born) + 1);
    scratch.positions.resize(static_cast<size_t>(n_born));
    int32_t* source = scratch.source.data();
    Newborn* newborns = scratch.newborns.data();
    const int64_t *ranks = scratch.ranks.data(), *keys = scratch.keys.data();
    const int32_t* survivors = scratch.survivors.data();
    int64_t i = 0, t = 0;
    for (int64_t j = 0; j < task.budget; ++j) {
        const bool is_new = ranks[t] < keys[i];
        source[j] = survivors[i];
        newborns[t].target = j;  // right when t moves on
        t += is_new;
        i += !is_new;
    }
    scratch.newborns.resize(static_cast<size_t>(n_born));
    t = 0;
    for (int64_t l = 0; l < task.layers; ++l) {
        const RewireLayer& layer = scratch.layers[static_cast<size_t>(l)];
        for (const int64_t end = t + born[l]; t < end; ++t) {
            // Its rank plus the survivors before it, which are all before its target but the newborns.
            const int64_t position = ranks[t] + newborns[t].target - t;
            const int64_t local = position - layer.first_position;
            scratch.positions[static_cast<size_t>(t)] = position;
            newborns[t].column = layer.first_column + local / layer.n_out;
            newborns[t].code = static_cast<int32_t>(local % layer.n_out);
        }
    }
}

static void recount_columns(const RewireTask& task, const int64_t* dead, int64_t n_dead, const int32_t* columns,
                            RewireScratch& scratch) {
    const RewireLayer& last = scratch.layers.back();
    const int64_t count = last.first_column + last.n_in;
    scratch.change.assign(static_cast<size_t>(count), 0);
    for (int64_t t = 0; t < n_dead; ++t) --scratch.change[static_cast<size_t>(columns[dead[t]])];
    for (const Newborn& newborn : scratch.newborns) ++scratch.change[static_cast<size_t>(newborn.column)];
    int64_t sum = 0;
    for (int64_t c = 0; c < count; ++c) task.colptr[c + 1] += sum += scratch.change[static_cast<size_t>(c)];
}

template <class Element, class Value>
static void gather_array(void* data, int64_t budget, RewireScratch& scratch, Value&& value) {
    scratch.gathered.resize(static_cast<size_t>(budget) * sizeof(Element));
    Element* to = reinterpret_cast<Element*>(scratch.gathered.data());
    const Element* from = static_cast<const Element*>(data);
    const int32_t* source = scratch.source.data();
    for (int64_t j = 0; j < budget; ++j) to[j] = from[source[j]];
    for (const Newborn& newborn : scratch.newborns) to[newborn.target] = static_cast<Element>(value(newborn));
    std::memcpy(data, to, static_cast<size_t>(budget) * sizeof(Element));
}

static void gather_riders(const RewireTask& task, RewireScratch& scratch) {
    gather_array<int32_t>(task.code, task.budget, scratch, [](const Newborn& newborn) { return newborn.code; });
    if (task.columns) {
        const auto column = [](const Newborn& newborn) { return static_cast<int32_t>(newborn.column); };
        gather_array<int32_t>(task.columns, task.budget, scratch, column);
    }
    for (int64_t i = 0; i < task.n_riders; ++i) {
        const wb_rider& rider = task.riders[i];
        const auto fill = [&](const Newborn&) { return rider.fill; };
        if (rider.size == 4) gather_array<int32_t>(rider.data, task.budget, scratch, fill);
        else gather_array<int64_t>(rider.data, task.budget, scratch, fill);
    }
}

// Replaces the dead, once the ranks are drawn.
static void rewire_by_merging(const RewireTask& task, const int64_t* dead, int64_t n_dead, const int64_t* born,
                              RewireScratch& scratch) {
    const int32_t* columns = columns_of(task, scratch);
    list_survivors(task, dead, n_dead, columns, scratch);
    count_ranks_through(task, born, scratch);
    merge_newborns(task, n_dead, born, scratch);
    add_signs(task, scratch);
    recount_columns(task, dead, n_dead, columns, scratch);
    gather_riders(task, scratch);
}
