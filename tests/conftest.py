"""One thread a test process: two of them share two cores better than four threads do."""

import torch

torch.set_num_threads(1)
