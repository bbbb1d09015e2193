// Placeholder.
static void fill_fused(KernelTable&) {}
