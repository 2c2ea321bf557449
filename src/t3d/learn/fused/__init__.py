"""Steps 4 to 15 again, compiled for the CPU: the second engine.

It gives the numbers of learn/t3d.py several times faster. docs/fused.md explains the ideas.
Read it in this order:

1. update.py   the page again: the job, and one update, step by step beside `T3D.update`
2. steps.py    the formulas of one transition: gather, normalise, smooth, Bellman, losses
3. layers.py   networks: forward, backward, Adam, Polyak; units.py, activations and norms
4. tiles.py    the matrix products under these, in the processor's registers; vectors.py, the
               instructions that they are written in
5. plan.py     where everything is: the parts of a job, and the layout of a panel
6. threads.py  how threads share an update: counters, a barrier, the next task
7. entry.py    the compiled functions that Python calls, and how they are kept on disk
8. team.py     the threads themselves, and pace.py, how many of them are worth it
9. agent.py    FusedT3D: the agent whose arrays all this works on
"""
