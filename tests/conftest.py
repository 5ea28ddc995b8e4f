"""One thread a test process, as two of them share two cores better than four threads do; tests that need a GPU."""

import pytest
import torch

torch.set_num_threads(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked `gpu` where there is none."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU, and PyTorch finds none here")
