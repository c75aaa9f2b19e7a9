"""A local page for a team: datasets with what is left of their limits, runs, studies as they run, and sign-offs.

`hushgraph ui` serves it on this machine alone. It reads the project's ledger, the folders of models that the ledger
knows, and the results of studies; the one thing it writes is a sign-off.
"""
