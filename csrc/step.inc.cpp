// A whole step of Algorithm 1 for one wiring: the update, and the rewiring of who died in it.

template <class T>
static int64_t count_active(const T* theta, int64_t from, int64_t to) {
    int64_t count = 0;
    for (int64_t k = from; k < to; ++k) count += theta[k] >= 0;
    return count;
}

template <class T>
static int64_t step(const wb_step* task, int threads) {
    static thread_local std::vector<int64_t> dead;
    static thread_local RewireScratch scratch;
    const UpdateArrays<T> arrays{static_cast<T*>(task->theta),   static_cast<const T*>(task->gradient),
                                 static_cast<T*>(task->moment1), static_cast<T*>(task->moment2),
                                 static_cast<T*>(task->moment2_max), task->birth};
    if (try_update<T>(task->rule, arrays, task->budget, task->walks, task->n_walks, threads, dead)) return WB_NOT_FINITE;
    const int64_t n_dead = static_cast<int64_t>(dead.size());
    const RewireTask rewiring{task->budget, task->layers, task->n_in, task->n_out, task->colptr, task->code, task->riders,
                              task->n_riders, nullptr, task->rule.seed, task->wiring_index, task->rule.step,
                              task->shares};
    rewire_wiring(rewiring, dead.data(), n_dead, task->born, task->died, threads, scratch);
    const int64_t* colptr = task->colptr;
    for (int64_t i = 0; i < task->layers; colptr += task->n_in[i], ++i)
        task->active[i] = count_active(arrays.theta, colptr[0], colptr[task->n_in[i]]);
    return n_dead;
}

static void fill_step(KernelTable& table) {
    table.step_f32 = step<float>;
    table.step_f64 = step<double>;
}
