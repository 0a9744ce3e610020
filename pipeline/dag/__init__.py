"""The whole job: its stages, the store of their results, and the order in which a run goes through them."""
