"""Step 1: the replay memory, and how batches are drawn from it.

memory.py      the ring: every observation stored once
tables.py      its arrays, and how they are saved and restored
frames.py      stacks of frames, each frame stored once
sampling.py    which rows to learn from, and n-step returns
blocks.py      pieces for checkpoints, and checks of what files say
"""
