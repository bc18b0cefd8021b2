//! Plans: kernels, steps and buffers as plain data; device profiles, memory planner, bundles.
