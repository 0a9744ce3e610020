"""Cut a finished model over processes: layouts, the device mesh, and the collectives that the cuts need."""
