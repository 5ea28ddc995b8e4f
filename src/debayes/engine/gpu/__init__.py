"""Networks on GPUs: fused steps, kernels, CUDA graphs."""
