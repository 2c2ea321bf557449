"""The same collector elsewhere: as Ray actors, on the cores of this machine or of many.

The learner asks each collector for a few steps, with the policy of that moment, and stores the
answers as if they had been played here. `staleness` limits how far collectors run ahead; with 0
they play in lock-step, and the run is the local one of as many environments, to the bit.

In reading order: cluster (reaching Ray), messages (what travels), actor (who plays), members
(who is lost and who is back), exchange (asking, checking, storing), lockstep and free_running
(whom to ask when), collectors (what the training loop sees).
"""
