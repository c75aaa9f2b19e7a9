"""Where work is done: in this process, in other processes of this machine, or on a cluster."""
