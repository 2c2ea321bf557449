"""TD7's update, compiled: learn/td7.py again, built of the same parts as TD3's.

1. update.py   the page again: one update, step by step beside `TD7.update`
2. steps.py    the formulas that TD7 adds to those of TD3, and where embeddings are copied to
3. plan.py     where its five networks are in a panel
4. entry.py    the compiled functions that Python calls, and how it acts
5. agent.py    FusedTD7: the agent whose arrays all this works on
"""
