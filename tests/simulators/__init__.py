"""Commands that answer like nvidia-smi, hy-smi and rocm-smi on a machine without cards. README.md tells how to use them."""
