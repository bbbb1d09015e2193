"""The program beside the library: training runs, the paper's figures, reports, benchmarks, sweeps and data sets."""
